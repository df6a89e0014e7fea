#include "epipe/codec/kernels/tokens.h"

#include <array>
#include <span>

#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/scalar.h"

namespace epipe::kernels::scalar_impl {
namespace {

// How many of the ascending limits a value reaches.
template <typename T, std::size_t kCount>
inline T count_reached(T value, const std::array<T, kCount>& limits) {
  T reached = 0;
  for (std::size_t i = 0; i < kCount; ++i) reached = static_cast<T>(reached + (value >= limits[i] ? 1 : 0));
  return reached;
}

}  // namespace

void quantize(std::span<const float> y, const DeadZone& zone, std::uint8_t* tokens) {
  for (std::size_t i = 0; i < y.size(); ++i) tokens[i] = token_of(level_of(y[i], zone), y[i] < 0);
}

void look_up(std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const float* values, float* out) {
  for (std::size_t i = 0; i < tokens.size(); ++i) out[i] = values[table_of[i] * kTokenRoom + tokens[i]];
}

void write_raw(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, BitWriter& out) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < kFirstEscape) continue;
    const unsigned bits = raw_bits(tokens[i]);
    out.put(static_cast<std::uint32_t>(level_of(y[i], zone)) & ((1U << bits) - 1), bits);
  }
}

bool read_raw(std::span<const std::uint8_t> tokens, float step, BitReader& in, float* y) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < kFirstEscape) continue;
    const unsigned bits = raw_bits(tokens[i]);
    if (in.available() < bits) return false;
    const std::int32_t level = escape_base(tokens[i]) + static_cast<std::int32_t>(in.take(bits));
    const float value = (static_cast<float>(level) - y[i]) * step;
    y[i] = is_negative(tokens[i]) ? -value : value;
  }
  return true;
}

void map_bytes(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = map[in[i]];
}

void parent_levels(const ParentPlanes& parents, std::size_t n, std::uint8_t* out) {
  const std::uint8_t* const above = parents.above;
  const std::uint8_t* const left = parents.left;
  const std::uint8_t* const diagonal = parents.diagonal;
  const std::uint8_t* const above2 = parents.above2;
  const std::uint8_t* const left2 = parents.left2;
  for (std::size_t i = 0; i < n; ++i) {
    const auto sum = static_cast<std::uint8_t>(2 * (above[i] + left[i]) + diagonal[i] + above2[i] + left2[i]);
    out[i] = count_reached(sum, kParentLimits);
  }
}

void running_levels(const std::uint8_t* before, std::size_t n, std::uint16_t* means, std::uint8_t* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto mean = static_cast<std::uint16_t>(means[i] - (means[i] >> 3U) + 16 * before[i]);
    means[i] = mean;
    out[i] = static_cast<std::uint8_t>(1 + count_reached(mean, kRunningLimits));
  }
}

void neighbour_levels(const std::uint8_t* before, std::size_t n, std::uint8_t* out) {
  const auto level = [](int sum) { return static_cast<std::uint8_t>(1 + count_reached(static_cast<std::uint8_t>(sum), kNeighbourLimits)); };
  for (std::size_t i = 1; i + 1 < n; ++i) out[i] = level(2 * before[i] + before[i - 1] + before[i + 1]);
  if (n > 0) out[0] = level(2 * before[0] + (n > 1 ? before[1] : 0));
  if (n > 1) out[n - 1] = level(2 * before[n - 1] + before[n - 2]);
}

void magnitudes_of(std::span<const std::uint8_t> tokens, std::uint8_t* out) {
  for (std::size_t i = 0; i < tokens.size(); ++i) out[i] = magnitude_of(tokens[i]);
}

}  // namespace epipe::kernels::scalar_impl
