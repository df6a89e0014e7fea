#include "epipe/codec/kernels/cuda/klt.h"

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A thread per place holds its channels, at most kRoom of them, in registers. Each sum starts with a product and continues with fma in
// ascending order, as on the host.
template <unsigned kRoom>
__global__ void __launch_bounds__(kThreads) multiply_channels_kernel(const float* x, std::uint64_t places, unsigned channels,
                                                                     std::uint64_t map, const float* __restrict__ matrix, float* y) {
  __shared__ float rows[kRoom * kRoom];
  for (unsigned i = threadIdx.x; i < kRoom * kRoom; i += kThreads) {
    const unsigned k = i / kRoom;
    const unsigned c = i % kRoom;
    rows[i] = k < channels && c < channels ? matrix[k * channels + c] : 0.0F;
  }
  __syncthreads();
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t place = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; place < places; place += stride) {
    const std::uint64_t first = place / map * channels * map + place % map;
    float values[kRoom];
#pragma unroll
    for (unsigned c = 0; c < kRoom; ++c) values[c] = c < channels ? x[first + c * map] : 0.0F;
#pragma unroll 4
    for (unsigned k = 0; k < channels; ++k) {
      float sum = __fmul_rn(rows[k * kRoom], values[0]);
#pragma unroll
      for (unsigned c = 1; c < kRoom; ++c) sum = c < channels ? __fmaf_rn(rows[k * kRoom + c], values[c], sum) : sum;
      y[first + k * map] = sum;
    }
  }
}

template <unsigned kRoom>
void launch(const float* x, std::uint64_t places, unsigned channels, std::uint64_t map, const float* matrix, float* y, Stream stream) {
  multiply_channels_kernel<kRoom><<<grid_for(places, kThreads), kThreads, 0, stream>>>(x, places, channels, map, matrix, y);
  check_launch("multiply_channels");
}

}  // namespace

void multiply_channels(const float* x, std::uint64_t images, unsigned channels, std::uint64_t map, const float* matrix, float* y,
                       Stream stream) {
  const std::uint64_t places = images * map;
  if (channels <= 16) return launch<16>(x, places, channels, map, matrix, y, stream);
  if (channels <= 32) return launch<32>(x, places, channels, map, matrix, y, stream);
  return launch<kMostChannels>(x, places, channels, map, matrix, y, stream);
}

}  // namespace epipe::kernels::cuda
