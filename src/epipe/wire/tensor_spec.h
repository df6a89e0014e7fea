#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::wire {

inline constexpr std::size_t kMaxDims = 8;

// The shape of a float32 tensor, which is all the wire knows of it.
struct TensorSpec {
  std::vector<std::uint64_t> dims;

  // The product of the dims; nullopt where 64 bits do not hold it. No dims: one value.
  std::optional<std::uint64_t> checked_values() const {
    std::uint64_t product = 1;
    bool overflow = false;
    for (const std::uint64_t dim : dims) {
      if (dim == 0) return 0;
      const auto next = checked_mul(product, dim);
      overflow |= !next;
      product = next.value_or(1);
    }
    if (overflow) return std::nullopt;
    return product;
  }
  // For a spec that was checked before.
  std::size_t values() const { return static_cast<std::size_t>(checked_values().value_or(0)); }

  bool operator==(const TensorSpec&) const = default;
};

// "[4,32,112,112]"
std::string to_string(const TensorSpec& spec);

}  // namespace epipe::wire
