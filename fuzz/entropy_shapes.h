#pragma once

#include <cstdint>
#include <vector>

// The first byte of an input of entropy_fuzz, modulo their number, says which shape the payload in the other bytes claims.
namespace epipe::fuzz {

inline const std::vector<std::vector<std::uint64_t>>& entropy_shapes() {
  static const std::vector<std::vector<std::uint64_t>> kShapes = {
      {8},      {1000},        {2, 6, 7}, {1, 3, 5, 6}, {2, 3, 20, 17}, {1, 2, 16, 16}, {3, 10, 40},
      {64, 64}, {1, 40, 7, 7}, {5000},    {1, 1, 1, 1}, {2, 1, 90, 91}, {4, 96, 2, 2}};
  return kShapes;
}

}  // namespace epipe::fuzz
