#pragma once

#include <cstddef>

// Offsets of the fixed fields in a frame's header, for frame.cpp and for tests that forge frames. All other code uses frame.h.
namespace epipe::wire {

inline constexpr std::size_t kAtVersion = 4;
inline constexpr std::size_t kAtFlags = 6;
inline constexpr std::size_t kAtPayloadBytes = 8;
inline constexpr std::size_t kAtHeaderBytes = 16;
inline constexpr std::size_t kAtChecksum = 20;
inline constexpr std::size_t kAtStep = 24;
inline constexpr std::size_t kAtMicroBatch = 32;
inline constexpr std::size_t kAtCut = 36;
inline constexpr std::size_t kAtDirection = 38;
inline constexpr std::size_t kAtDtype = 39;
inline constexpr std::size_t kAtDimCount = 40;
inline constexpr std::size_t kAtSpecBytes = 41;
inline constexpr std::size_t kAtPart = 42;
inline constexpr std::size_t kAtParts = 43;
inline constexpr std::size_t kAtReserved = 44;

}  // namespace epipe::wire
