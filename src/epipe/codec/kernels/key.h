#pragma once

#include <bit>

#include "epipe/codec/kernels/kernels.h"

namespace epipe::kernels {

// Flipping the low bits of negative floats makes the order of the bit patterns that of the values.
inline Key value_key(float x) {
  const auto bits = std::bit_cast<Key>(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
inline Key magnitude_key(float x) { return std::bit_cast<Key>(x) & 0x7fffffff; }
inline Key key_of(float x, KeyOf of) { return of == KeyOf::kValue ? value_key(x) : magnitude_key(x); }

// The float of a value key (for a magnitude key: the magnitude).
inline float key_value(Key key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff)); }

inline constexpr Key kInfinityKey = 0x7f800000;

// Inf and NaN sit beyond the finite floats at both ends.
inline bool all_finite(KeyRange range) { return range.max < kInfinityKey && range.min > ~kInfinityKey; }

}  // namespace epipe::kernels
