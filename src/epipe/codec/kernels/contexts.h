#pragma once

#include <array>
#include <cstdint>

// Context levels: how large the magnitudes around a symbol are. A magnitude is at most kMaxMagnitude.
namespace epipe::kernels {

// Magnitudes at lower frequencies of the same blocks; planes that do not exist are planes of zeros.
struct ParentPlanes {
  const std::uint8_t* above;     // one lower vertically
  const std::uint8_t* left;      // one lower horizontally
  const std::uint8_t* diagonal;  // one lower in both
  const std::uint8_t* above2;    // two lower vertically
  const std::uint8_t* left2;     // two lower horizontally
};

// level = the number of limits that 2 above + 2 left + diagonal + above2 + left2 reaches.
inline constexpr std::array<std::uint8_t, 7> kParentLimits = {1, 2, 3, 5, 8, 14, 24};

// level = 1 + the number of limits that twice a magnitude plus its two neighbours reaches.
inline constexpr std::array<std::uint8_t, 14> kNeighbourLimits = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48};

// level = 1 + the number of limits that a running mean, times 128, reaches.
inline constexpr std::array<std::uint16_t, 14> kRunningLimits = {1, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};

}  // namespace epipe::kernels
