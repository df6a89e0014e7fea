#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

// How a quantized level becomes an entropy-coded token and, where it is large, raw bits.
//
//   |q|         0    1    2  ...  15   16..23  24..31  32..47  ...  below 2^21
//   token       0   1,2  3,4 ... 29,30  31,32   33,34   35,36  ...  97,98         the second of a pair is the negative one
//   raw bits    0    0    0  ...   0      3       3       4    ...   19           the low bits of |q|
namespace epipe::kernels {

inline constexpr std::size_t kTokens = 99;
inline constexpr std::size_t kTokenRoom = 128;  // tables indexed by token have this many places
inline constexpr std::uint8_t kFirstEscape = 31;
inline constexpr float kMaxLevel = 0x1p20F;  // a quantizer's step is so large that no level exceeds this
inline constexpr std::uint8_t kMaxMagnitude = 15;

// |q| = 0 below `threshold`, else trunc(|y| * scale + offset); both in steps. threshold + offset >= 1.
struct DeadZone {
  float scale;  // 1 / step
  float threshold;
  float offset;
};

inline std::int32_t level_of(float y, const DeadZone& zone) {
  const float a = std::fabs(y) * zone.scale;
  return a < zone.threshold ? 0 : static_cast<std::int32_t>(a + zone.offset);
}

// A float's bits from the upper half of the mantissa on count half octaves.
inline constexpr std::int32_t kHalfOctaves = 2 * (127 + 4);

inline std::uint8_t token_of(std::int32_t level, bool negative) {
  const std::int32_t sign = negative ? 1 : 0;
  const std::int32_t large = kFirstEscape + 2 * ((std::bit_cast<std::int32_t>(static_cast<float>(level)) >> 22) - kHalfOctaves) + sign;
  const std::int32_t small = level == 0 ? 0 : 2 * level - 1 + sign;
  return static_cast<std::uint8_t>(level > kMaxMagnitude ? large : small);
}

// Raw bits of an escape token, and the smallest |q| it stands for.
constexpr unsigned raw_bits(std::uint8_t token) { return 3U + ((token - kFirstEscape) >> 2U); }
constexpr std::int32_t escape_base(std::uint8_t token) {
  const unsigned half_octave = (token - kFirstEscape) >> 1U;
  return static_cast<std::int32_t>((2U + (half_octave & 1U)) << raw_bits(token));
}

// |q|, at most kMaxMagnitude: what contexts are made of.
constexpr std::uint8_t magnitude_of(std::uint8_t token) {
  return token >= kFirstEscape ? kMaxMagnitude : static_cast<std::uint8_t>((token + 1U) >> 1U);
}

constexpr bool is_negative(std::uint8_t token) { return token != 0 && (token & 1U) == 0; }

}  // namespace epipe::kernels
