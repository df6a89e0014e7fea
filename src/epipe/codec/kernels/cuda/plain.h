#pragma once

#include <cstddef>
#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

// Values one by one: as they are, as halves, scaled.
namespace epipe::kernels::cuda {

enum class Format : std::uint8_t { kFp32, kFp16, kBf16 };

// *unfit becomes 1 when a value is NaN or Inf, or rounds to Inf; it is not cleared.
void store_plain(const float* x, std::size_t n, Format format, void* out, std::uint32_t* unfit, Stream stream);
void load_plain(const void* in, std::size_t n, Format format, float* out, std::uint32_t* unfit, Stream stream);

// x * 2^exponent, at most the largest float. `out` may be `x`.
void scale_by_exponent(const float* x, std::size_t n, int exponent, float* out, Stream stream);

}  // namespace epipe::kernels::cuda
