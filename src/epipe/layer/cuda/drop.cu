#include "epipe/layer/cuda/drop.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/layer/scramble.h"

namespace epipe::layer::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Keys are passed as kernel arguments: no copy to the device, nothing to wait for. Or they are already in device memory.
constexpr std::size_t kMostSamples = 128;
struct Keys {
  std::uint64_t of_sample[kMostSamples];
};
struct KeysInMemory {
  const std::uint64_t* of_sample;
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
template <typename T, unsigned kSize, typename SomeKeys>
__global__ void __launch_bounds__(kThreads)
    drop_kernel(const T* __restrict__ x, T* __restrict__ y, SomeKeys keys, std::size_t values, float p, float kept) {
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

template <unsigned kSize, typename T, typename SomeKeys>
void drop_packs(const T* x, T* y, const SomeKeys& keys, std::size_t samples, std::size_t values, float p, float kept,
                kernels::cuda::Stream stream) {
  const dim3 grid(kernels::cuda::grid_for(values / kSize, kThreads), static_cast<unsigned>(samples));
  drop_kernel<T, kSize, SomeKeys><<<grid, kThreads, 0, stream>>>(x, y, keys, values, p, kept);
  kernels::cuda::check_launch("drop");
}

template <typename T, typename SomeKeys>
void drop_samples(const void* x, void* y, const SomeKeys& keys, std::size_t samples, std::size_t values, float p, float kept,
                  kernels::cuda::Stream stream) {
  constexpr unsigned kPack = 16 / sizeof(T);
  const auto* const from = static_cast<const T*>(x);
  auto* const to = static_cast<T*>(y);
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) & 15U) == 0;
  if (aligned && values % kPack == 0) {
    drop_packs<kPack>(from, to, keys, samples, values, p, kept, stream);
  } else {
    drop_packs<1>(from, to, keys, samples, values, p, kept, stream);
  }
}

template <typename SomeKeys>
void drop_elements(const void* x, void* y, Element element, const SomeKeys& keys, std::size_t samples, std::size_t values, float p,
                   float kept, kernels::cuda::Stream stream) {
  switch (element) {
    case Element::kFloat: return drop_samples<float>(x, y, keys, samples, values, p, kept, stream);
    case Element::kHalf: return drop_samples<__half>(x, y, keys, samples, values, p, kept, stream);
    case Element::kBFloat16: return drop_samples<__nv_bfloat16>(x, y, keys, samples, values, p, kept, stream);
  }
}

}  // namespace

void drop(const void* x, void* y, Element element, std::span<const std::uint64_t> keys, std::size_t values, float p, float kept,
          kernels::cuda::Stream stream) {
  const std::size_t sample_bytes = values * (element == Element::kFloat ? 4 : 2);
  for (std::size_t s = 0; s < keys.size() && values > 0; s += kMostSamples) {
    const auto some = keys.subspan(s, std::min(kMostSamples, keys.size() - s));
    Keys own{};
    std::copy(some.begin(), some.end(), own.of_sample);
    drop_elements(static_cast<const std::byte*>(x) + s * sample_bytes, static_cast<std::byte*>(y) + s * sample_bytes, element, own,
                  some.size(), values, p, kept, stream);
  }
}

void drop(const void* x, void* y, Element element, const std::uint64_t* keys, std::size_t samples, std::size_t values, float p, float kept,
          kernels::cuda::Stream stream) {
  const std::size_t sample_bytes = values * (element == Element::kFloat ? 4 : 2);
  constexpr std::size_t kMostRows = 65535;  // of a grid
  for (std::size_t s = 0; s < samples && values > 0; s += kMostRows) {
    drop_elements(static_cast<const std::byte*>(x) + s * sample_bytes, static_cast<std::byte*>(y) + s * sample_bytes, element,
                  KeysInMemory{keys + s}, std::min(kMostRows, samples - s), values, p, kept, stream);
  }
}

}  // namespace epipe::layer::cuda
