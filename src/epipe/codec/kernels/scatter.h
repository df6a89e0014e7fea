#pragma once

#include <cstdint>

namespace epipe::kernels {

// Fixed values in [-1, 1) that look random: splitmix64 of the index. The same on host and device.
constexpr float scattered(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<float>(static_cast<std::int64_t>(z ^ (z >> 31))) * 0x1p-63F;
}

}  // namespace epipe::kernels
