#pragma once

#include <type_traits>

#include "epipe/codec/kernels/cuda/launch.cuh"

// Values to packed codes of 1 to 16 bits and back, whatever a code means. A code's maker and reader are small objects with
// prepare(shared), which all threads of a block call first, and operator().
namespace epipe::kernels::cuda {

constexpr unsigned kCodeThreads = 256;
constexpr unsigned kTileQuads = 4;                         // per thread
constexpr unsigned kTile = kCodeThreads * kTileQuads * 4;  // values
constexpr std::size_t kCodeSharedFloats = 2 * 256;         // what prepare() may use

// Codes go through shared memory, so that both the loads and the stores of a warp are consecutive.
template <unsigned kBits, typename CodeOf>
__global__ void __launch_bounds__(kCodeThreads)
    pack_kernel(const float* __restrict__ x, std::size_t n, std::uint32_t* out, CodeOf code_of) {
  __shared__ float room[kCodeSharedFloats];
  __shared__ ushort4 codes[kTile / 4];
  code_of.prepare(room);
  for (std::size_t base = static_cast<std::size_t>(blockIdx.x) * kTile; base < n; base += static_cast<std::size_t>(gridDim.x) * kTile) {
    const auto* const quads = reinterpret_cast<const float4*>(x + base);
    if (base + kTile <= n) {
      float4 v[kTileQuads];
      for (unsigned j = 0; j < kTileQuads; ++j) v[j] = quads[j * kCodeThreads + threadIdx.x];
      for (unsigned j = 0; j < kTileQuads; ++j) {
        codes[j * kCodeThreads + threadIdx.x] = make_ushort4(code_of(v[j].x), code_of(v[j].y), code_of(v[j].z), code_of(v[j].w));
      }
    } else {
      auto* const single = reinterpret_cast<unsigned short*>(codes);
      for (unsigned i = threadIdx.x; i < kTile; i += kCodeThreads) single[i] = base + i < n ? code_of(x[base + i]) : 0;
    }
    __syncthreads();
    const auto* const single = reinterpret_cast<const unsigned short*>(codes);
    const std::size_t words = (n * kBits + 31) / 32;
    for (unsigned w = threadIdx.x; w < kTile * kBits / 32; w += kCodeThreads) {
      unsigned at = 32 * w / kBits;
      unsigned filled = kBits - 32 * w % kBits;
      std::uint32_t word = static_cast<std::uint32_t>(single[at]) >> (32 * w % kBits);
      for (; filled < 32; filled += kBits) word |= static_cast<std::uint32_t>(single[++at]) << filled;
      const std::size_t to = base / 32 * kBits + w;
      if (to < words) out[to] = word;
    }
    __syncthreads();
  }
}

// Four values per thread; their codes lie within three words.
template <unsigned kBits, typename ValueOf>
__global__ void __launch_bounds__(kCodeThreads)
    unpack_kernel(const std::uint32_t* __restrict__ in, std::size_t n, float* __restrict__ out, ValueOf value_of) {
  __shared__ float room[kCodeSharedFloats];
  value_of.prepare(room);
  constexpr std::uint32_t kMask = (1U << kBits) - 1;
  const std::size_t words = (n * kBits + 31) / 32;
  const std::size_t quads = (n + 3) / 4;
  for (std::size_t q = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; q < quads;
       q += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const std::size_t bit = 4 * kBits * q;
    const std::size_t w = bit / 32;
    const unsigned shift = bit % 32;
    const std::uint32_t a = in[w];
    const std::uint32_t b = shift + 4 * kBits > 32 && w + 1 < words ? in[w + 1] : 0;
    const std::uint32_t c = shift + 4 * kBits > 64 && w + 2 < words ? in[w + 2] : 0;
    const std::uint64_t low = static_cast<std::uint64_t>(__funnelshift_r(b, c, shift)) << 32 | __funnelshift_r(a, b, shift);
    float4 v;
    v.x = value_of(static_cast<std::uint32_t>(low) & kMask);
    v.y = value_of(static_cast<std::uint32_t>(low >> kBits) & kMask);
    v.z = value_of(static_cast<std::uint32_t>(low >> 2 * kBits) & kMask);
    v.w = value_of(static_cast<std::uint32_t>(low >> 3 * kBits) & kMask);
    if (4 * q + 4 <= n) {
      reinterpret_cast<float4*>(out)[q] = v;
    } else {
      const float values[] = {v.x, v.y, v.z, v.w};
      for (std::size_t i = 4 * q; i < n; ++i) out[i] = values[i - 4 * q];
    }
  }
}

// Calls launch(width) with the width as a type, because kernels are compiled for each.
template <unsigned kWidth = 1, typename Launch>
void with_width(unsigned bits, Launch&& launch) {
  if (bits == kWidth) {
    launch(std::integral_constant<unsigned, kWidth>{});
  } else if constexpr (kWidth < 16) {
    with_width<kWidth + 1>(bits, launch);
  }
}

// `out` has room for whole words; the bits after the last code are zero.
template <typename CodeOf>
void pack(const float* x, std::size_t n, unsigned bits, std::uint32_t* out, const CodeOf& code_of, Stream stream) {
  with_width(bits, [&](auto width) { pack_kernel<width.value><<<grid_for(n, kTile), kCodeThreads, 0, stream>>>(x, n, out, code_of); });
  check_launch("pack");
}

template <typename ValueOf>
void unpack(const std::uint32_t* in, std::size_t n, unsigned bits, float* out, const ValueOf& value_of, Stream stream) {
  with_width(bits, [&](auto width) {
    unpack_kernel<width.value><<<grid_for(n, 4 * kCodeThreads), kCodeThreads, 0, stream>>>(in, n, out, value_of);
  });
  check_launch("unpack");
}

}  // namespace epipe::kernels::cuda
