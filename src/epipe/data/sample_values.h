#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::data {

// The values of one sample of this shape, whose extents are positive; nullopt where 64 bits do not hold their number.
inline std::optional<std::uint64_t> sample_values(const std::vector<std::int64_t>& shape) {
  std::uint64_t values = 1;
  for (const std::int64_t extent : shape) {
    const auto product = checked_mul(values, static_cast<std::uint64_t>(extent));
    if (!product) return std::nullopt;
    values = *product;
  }
  return values;
}

}  // namespace epipe::data
