#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::data {

// The number of values in one sample of this shape, whose extents are positive; nullopt on 64-bit overflow.
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
