#include "epipe/codec/kernels/cuda/means.h"

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMapsPerBlock = kThreads / kWarp;
constexpr unsigned kLoads = 8;  // on their way together

// A warp per map, a lane per interleaved sum.
__global__ void __launch_bounds__(kThreads)
    sum_maps_kernel(const float* __restrict__ x, std::uint64_t maps, std::uint64_t map, double* __restrict__ sums) {
  const std::uint64_t m = static_cast<std::uint64_t>(blockIdx.x) * kMapsPerBlock + threadIdx.x / kWarp;
  if (m >= maps) return;
  const unsigned lane = threadIdx.x % kWarp;
  const float* const values = x + m * map;
  float own = 0;
  std::uint64_t i = lane;
  for (; i + (kLoads - 1) * kWarp < map; i += kLoads * kWarp) {
    float some[kLoads];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) some[k] = values[i + k * kWarp];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) own = __fadd_rn(own, some[k]);
  }
  for (; i < map; i += kWarp) own = __fadd_rn(own, values[i]);
  double sum = 0;
  for (unsigned k = 0; k < kWarp; ++k) sum = __dadd_rn(sum, static_cast<double>(__shfl_sync(kAllLanes, own, static_cast<int>(k))));
  if (lane == 0) sums[m] = sum;
}

__global__ void __launch_bounds__(kThreads) add_to_channels_kernel(float* __restrict__ x, std::uint64_t maps, std::uint64_t map,
                                                                   const float* __restrict__ shifts, unsigned channels) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t m = blockIdx.y; m < maps; m += gridDim.y) {
    const float shift = shifts[m % channels];
    float* const values = x + m * map;
    for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < map; i += stride) {
      values[i] = __fadd_rn(values[i], shift);
    }
  }
}

}  // namespace

void sum_maps(const float* x, std::uint64_t maps, std::uint64_t map, double* sums, Stream stream) {
  sum_maps_kernel<<<static_cast<unsigned>((maps + kMapsPerBlock - 1) / kMapsPerBlock), kThreads, 0, stream>>>(x, maps, map, sums);
  check_launch("sum_maps");
}

void add_to_channels(float* x, std::uint64_t maps, std::uint64_t map, const float* shifts, unsigned channels, Stream stream) {
  constexpr std::uint64_t kMostRows = 65535;  // of a grid
  const dim3 grid(grid_for(map, 4 * kThreads), static_cast<unsigned>(std::min(maps, kMostRows)));
  add_to_channels_kernel<<<grid, kThreads, 0, stream>>>(x, maps, map, shifts, channels);
  check_launch("add_to_channels");
}

}  // namespace epipe::kernels::cuda
