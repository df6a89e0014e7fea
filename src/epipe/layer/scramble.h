#pragma once

#include <cstdint>

// The numbers of a sequence by key and index, identical on the host and in kernels.
namespace epipe::layer {

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// splitmix64's finaliser: every bit of the input reaches every bit of the output.
constexpr std::uint64_t scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Number `index` of the sequence of a key, in [0, 1) with 24 bits: exact in float32.
constexpr float unit(std::uint64_t key, std::uint64_t index) {
  return static_cast<float>(scramble(key + (index + 1) * kGolden) >> 40) * 0x1p-24F;
}

}  // namespace epipe::layer
