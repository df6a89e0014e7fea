#include "epipe/layer/cuda/drop.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/layer/scramble.h"

namespace epipe::layer::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Keys travel as arguments of the kernel: no copy to the device, and nothing to wait for.
constexpr std::size_t kMostSamples = 128;
struct Keys {
  std::uint64_t of_sample[kMostSamples];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float x, float* out) { *out = x; }
__device__ void from_float(float x, __half* out) { *out = __float2half_rn(x); }
__device__ void from_float(float x, __nv_bfloat16* out) { *out = __float2bfloat16_rn(x); }

// What a thread reads and writes at once.
template <typename T, unsigned kSize>
struct alignas(kSize * sizeof(T)) Pack {
  T of[kSize];
};

// A row of blocks per sample.
template <typename T, unsigned kSize>
__global__ void __launch_bounds__(kThreads)
    drop_kernel(const T* __restrict__ x, T* __restrict__ y, Keys keys, std::size_t values, float p, float kept) {
  const std::uint64_t key = keys.of_sample[blockIdx.y];
  const auto* const from = reinterpret_cast<const Pack<T, kSize>*>(x + blockIdx.y * values);
  auto* const to = reinterpret_cast<Pack<T, kSize>*>(y + blockIdx.y * values);
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < values / kSize; i += stride) {
    Pack<T, kSize> pack = from[i];
#pragma unroll
    for (unsigned k = 0; k < kSize; ++k) {
      from_float(to_float(pack.of[k]) * (unit(key, i * kSize + k) < p ? 0.0F : kept), &pack.of[k]);
    }
    to[i] = pack;
  }
}

template <unsigned kSize, typename T>
void drop_packs(const T* x, T* y, const Keys& keys, std::size_t samples, std::size_t values, float p, float kept,
                kernels::cuda::Stream stream) {
  const dim3 grid(kernels::cuda::grid_for(values / kSize, kThreads), static_cast<unsigned>(samples));
  drop_kernel<T, kSize><<<grid, kThreads, 0, stream>>>(x, y, keys, values, p, kept);
  kernels::cuda::check_launch("drop");
}

template <typename T>
void drop_samples(const void* x, void* y, std::span<const std::uint64_t> keys, std::size_t values, float p, float kept,
                  kernels::cuda::Stream stream) {
  constexpr unsigned kPack = 16 / sizeof(T);
  Keys own{};
  std::copy(keys.begin(), keys.end(), own.of_sample);
  const auto* const from = static_cast<const T*>(x);
  auto* const to = static_cast<T*>(y);
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) & 15U) == 0;
  if (aligned && values % kPack == 0) {
    drop_packs<kPack>(from, to, own, keys.size(), values, p, kept, stream);
  } else {
    drop_packs<1>(from, to, own, keys.size(), values, p, kept, stream);
  }
}

}  // namespace

void drop(const void* x, void* y, Element element, std::span<const std::uint64_t> keys, std::size_t values, float p, float kept,
          kernels::cuda::Stream stream) {
  const std::size_t sample_bytes = values * (element == Element::kFloat ? 4 : 2);
  for (std::size_t s = 0; s < keys.size() && values > 0; s += kMostSamples) {
    const auto some = keys.subspan(s, std::min(kMostSamples, keys.size() - s));
    const auto* const from = static_cast<const std::byte*>(x) + s * sample_bytes;
    auto* const to = static_cast<std::byte*>(y) + s * sample_bytes;
    switch (element) {
      case Element::kFloat: drop_samples<float>(from, to, some, values, p, kept, stream); break;
      case Element::kHalf: drop_samples<__half>(from, to, some, values, p, kept, stream); break;
      case Element::kBFloat16: drop_samples<__nv_bfloat16>(from, to, some, values, p, kept, stream); break;
    }
  }
}

}  // namespace epipe::layer::cuda
