#include "epipe/codec/kernels/cuda/plain.h"

#include <cuda_fp16.h>

#include <cfloat>

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

__device__ std::uint16_t bfloat_from_float(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <Format kFormat>
struct Stored {
  using Type = std::uint16_t;
  static __device__ Type of(float x) { return kFormat == Format::kFp16 ? __half_as_ushort(__float2half_rn(x)) : bfloat_from_float(x); }
  static __device__ float back(Type s) {
    return kFormat == Format::kFp16 ? __half2float(__ushort_as_half(s)) : __uint_as_float(static_cast<std::uint32_t>(s) << 16);
  }
  static __device__ bool finite(Type s) {
    constexpr Type kInfinity = kFormat == Format::kFp16 ? 0x7c00 : 0x7f80;
    return (s & kInfinity) != kInfinity;
  }
};

template <>
struct Stored<Format::kFp32> {
  using Type = float;
  static __device__ Type of(float x) { return x; }
  static __device__ float back(Type s) { return s; }
  static __device__ bool finite(Type s) { return isfinite(s); }
};

__device__ std::size_t first_index() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::size_t index_stride() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

template <Format kFormat>
__global__ void store_kernel(const float* __restrict__ x, std::size_t n, typename Stored<kFormat>::Type* __restrict__ out,
                             std::uint32_t* unfit) {
  bool fits = true;
  for (std::size_t i = first_index(); i < n; i += index_stride()) {
    const auto stored = Stored<kFormat>::of(x[i]);
    fits = fits && Stored<kFormat>::finite(stored) && isfinite(x[i]);
    out[i] = stored;
  }
  if (!fits) *unfit = 1;
}

template <Format kFormat>
__global__ void load_kernel(const typename Stored<kFormat>::Type* __restrict__ in, std::size_t n, float* __restrict__ out,
                            std::uint32_t* unfit) {
  bool fits = true;
  for (std::size_t i = first_index(); i < n; i += index_stride()) {
    fits = fits && Stored<kFormat>::finite(in[i]);
    out[i] = Stored<kFormat>::back(in[i]);
  }
  if (!fits) *unfit = 1;
}

__global__ void scale_kernel(const float* x, std::size_t n, int exponent, float* out) {
  for (std::size_t i = first_index(); i < n; i += index_stride()) out[i] = fminf(fmaxf(ldexpf(x[i], exponent), -FLT_MAX), FLT_MAX);
}

template <Format kFormat>
void store(const float* x, std::size_t n, void* out, std::uint32_t* unfit, Stream stream) {
  store_kernel<kFormat><<<grid_for(n, 8 * kThreads), kThreads, 0, stream>>>(x, n, static_cast<typename Stored<kFormat>::Type*>(out), unfit);
  check_launch("store_plain");
}

template <Format kFormat>
void load(const void* in, std::size_t n, float* out, std::uint32_t* unfit, Stream stream) {
  load_kernel<kFormat>
      <<<grid_for(n, 8 * kThreads), kThreads, 0, stream>>>(static_cast<const typename Stored<kFormat>::Type*>(in), n, out, unfit);
  check_launch("load_plain");
}

}  // namespace

void store_plain(const float* x, std::size_t n, Format format, void* out, std::uint32_t* unfit, Stream stream) {
  switch (format) {
    case Format::kFp32: return store<Format::kFp32>(x, n, out, unfit, stream);
    case Format::kFp16: return store<Format::kFp16>(x, n, out, unfit, stream);
    case Format::kBf16: return store<Format::kBf16>(x, n, out, unfit, stream);
  }
}

void load_plain(const void* in, std::size_t n, Format format, float* out, std::uint32_t* unfit, Stream stream) {
  switch (format) {
    case Format::kFp32: return load<Format::kFp32>(in, n, out, unfit, stream);
    case Format::kFp16: return load<Format::kFp16>(in, n, out, unfit, stream);
    case Format::kBf16: return load<Format::kBf16>(in, n, out, unfit, stream);
  }
}

void scale_by_exponent(const float* x, std::size_t n, int exponent, float* out, Stream stream) {
  scale_kernel<<<grid_for(n, 8 * kThreads), kThreads, 0, stream>>>(x, n, exponent, out);
  check_launch("scale_by_exponent");
}

}  // namespace epipe::kernels::cuda
