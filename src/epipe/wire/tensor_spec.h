#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::wire {

inline constexpr std::size_t kMaxDims = 8;

// The shape of a tensor.
struct TensorSpec {
  std::vector<std::uint64_t> dims;

  // The product of the dims with 0 counted as 1: limits apply to this, because strides multiply that way even in an empty
  // tensor. nullopt on 64-bit overflow.
  std::optional<std::uint64_t> extent() const {
    std::optional<std::uint64_t> product = 1;
    for (const std::uint64_t dim : dims) {
      if (product) product = checked_mul(*product, dim == 0 ? 1 : dim);
    }
    return product;
  }
  // The number of values, for a spec whose extent was checked. No dims: one value.
  std::size_t values() const {
    std::size_t product = 1;
    for (const std::uint64_t dim : dims) product *= static_cast<std::size_t>(dim);
    return product;
  }

  bool operator==(const TensorSpec&) const = default;
};

// "[4,32,112,112]"
std::string to_string(const TensorSpec& spec);

}  // namespace epipe::wire
