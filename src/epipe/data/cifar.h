#pragma once

#include <cstdint>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// CIFAR's binary layout: records of 1 (CIFAR-10) or 2 (CIFAR-100: coarse, fine) label bytes and 3072 pixels, [3, 32, 32].
namespace epipe::data {

inline constexpr std::int64_t kCifarEdge = 32;
inline constexpr std::size_t kCifarPixels = 3 * kCifarEdge * kCifarEdge;

struct CifarRecords {
  std::vector<std::uint8_t> labels;  // the last label byte of each record
  std::vector<std::uint8_t> pixels;  // [N, 3, 32, 32]
};

// Appends the records of one file.
Result<void> append_cifar(ByteView bytes, std::size_t label_bytes, std::size_t classes, CifarRecords& out);

}  // namespace epipe::data
