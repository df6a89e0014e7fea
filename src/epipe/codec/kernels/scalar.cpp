#include "epipe/codec/kernels/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/fused.h"
#include "epipe/codec/kernels/key.h"

namespace epipe::kernels::scalar_impl {
namespace {

constexpr std::uint32_t kSignBit = 0x80000000;
constexpr std::uint16_t kHalfInfinity = 0x7c00;
constexpr std::uint16_t kBfloatInfinity = 0x7f80;

// IEEE binary16, ties to even, subnormals kept.
std::uint16_t half_from_float(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits & kSignBit) >> 16);
  const std::uint32_t magnitude = bits & ~kSignBit;
  if (magnitude >= 0x47800000) return sign | kHalfInfinity;  // 65536 and above, Inf, NaN
  if (magnitude < 0x38800000) {                              // below 2^-14: adding 0.5 lets the FPU round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000);
  }
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return sign | static_cast<std::uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);  // a carry may reach infinity
}

float float_from_half(std::uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
}

std::uint16_t bfloat_from_float(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The last entry that x reaches, counting from 1; entry 0 is reached by everything.
std::size_t search(float x, std::span<const float> ascending) {
  std::size_t found = 0;
  for (std::size_t bit = ascending.size() / 2; bit > 0; bit /= 2) {
    if (x >= ascending[found + bit]) found += bit;
  }
  return found;
}

}  // namespace

KeyRange key_range(std::span<const float> x, KeyOf of) {
  KeyRange range{key_of(x[0], of), key_of(x[0], of)};
  for (const float v : x) {
    range.min = std::min(range.min, key_of(v, of));
    range.max = std::max(range.max, key_of(v, of));
  }
  return range;
}

EnergySum energy(std::span<const float> x) {
  constexpr std::size_t kSums = 16;
  std::array<double, kSums> sums{};
  EnergySum all;
  std::size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
  }
  for (; i < x.size(); ++i) sums[0] += static_cast<double>(x[i]) * x[i];
  for (const float v : x) all.nonzero += v != 0 ? 1U : 0U;
  for (const double sum : sums) all.energy += sum;
  return all;
}

bool store_fp32(std::span<const float> x, MutableBytes out) {
  bool finite = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    store(out, 4 * i, x[i]);
    finite &= std::isfinite(x[i]);
  }
  return finite;
}

bool load_fp32(ByteView in, std::span<float> out) {
  bool finite = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load<float>(in, 4 * i);
    finite &= std::isfinite(out[i]);
  }
  return finite;
}

bool store_fp16(std::span<const float> x, MutableBytes out) {
  bool finite = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t half = half_from_float(x[i]);
    store(out, 2 * i, half);
    finite &= (half & kHalfInfinity) != kHalfInfinity;
  }
  return finite;
}

bool load_fp16(ByteView in, std::span<float> out) {
  bool finite = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto half = load<std::uint16_t>(in, 2 * i);
    out[i] = float_from_half(half);
    finite &= (half & kHalfInfinity) != kHalfInfinity;
  }
  return finite;
}

bool store_bf16(std::span<const float> x, MutableBytes out) {
  bool finite = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t bfloat = bfloat_from_float(x[i]);
    store(out, 2 * i, bfloat);
    finite &= std::isfinite(x[i]) && (bfloat & kBfloatInfinity) != kBfloatInfinity;
  }
  return finite;
}

bool load_bf16(ByteView in, std::span<float> out) {
  bool finite = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bfloat = load<std::uint16_t>(in, 2 * i);
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bfloat) << 16);
    finite &= (bfloat & kBfloatInfinity) != kBfloatInfinity;
  }
  return finite;
}

void encode_runs(std::span<const float> x, const RunTable& runs, MutableBytes out) {
  const auto top = static_cast<float>((1U << runs.level_bits()) - 1);
  BitWriter codes(out);
  for (const float v : x) {
    const std::size_t run = search(v, runs.mins());
    const float level = std::min(std::nearbyint((v - runs.mins()[run]) / runs.divisors()[run]), top);
    codes.put(run << runs.level_bits() | static_cast<std::uint32_t>(level), runs.bits());
  }
  codes.finish();
}

void decode_runs(ByteView in, const RunTable& runs, std::span<float> out) {
  const std::uint64_t level_mask = (1U << runs.level_bits()) - 1;
  BitReader codes(in);
  for (float& v : out) {
    const std::uint64_t code = codes.take(runs.bits());
    const std::size_t run = code >> runs.level_bits();
    v = fused(static_cast<float>(code & level_mask), runs.steps()[run], runs.mins()[run]);
  }
}

void encode_search(std::span<const float> x, std::span<const float> thresholds, unsigned bits, MutableBytes out) {
  BitWriter codes(out);
  for (const float v : x) codes.put(search(v, thresholds), bits);
  codes.finish();
}

void decode_table(ByteView in, std::span<const float> table, unsigned bits, std::span<float> out) {
  BitReader codes(in);
  for (float& v : out) v = table[std::min<std::size_t>(codes.take(bits), table.size() - 1)];
}

BracketScan scan_brackets(std::span<const float> x, KeyOf of, std::span<Bracket> brackets) {
  KeyRange range{key_of(x[0], of), key_of(x[0], of)};
  for (const float v : x) {
    const Key key = key_of(v, of);
    range = {std::min(range.min, key), std::max(range.max, key)};
    for (Bracket& b : brackets) {
      b.below_low += key < b.low ? 1 : 0;
      b.upto_low += key <= b.low ? 1 : 0;
      b.upto_high += key <= b.high ? 1 : 0;
      if (key <= b.low || key >= b.high) continue;
      if (b.inside_count + 64 > b.inside.size()) return {range, false};
      b.inside[b.inside_count++] = key;
    }
  }
  return {range, true};
}

}  // namespace epipe::kernels::scalar_impl
