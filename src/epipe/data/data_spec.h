#pragma once

#include <cstdint>
#include <vector>

namespace epipe::data {

// What a model must know of the data to fit it.
struct DataSpec {
  enum class Kind : std::uint8_t { kImages, kText };
  Kind kind = Kind::kImages;
  std::vector<std::int64_t> shape;  // of one sample: [C, H, W], [features], or [T] token ids
  std::int64_t classes = 2;
  std::int64_t vocabulary = 0;  // text: token ids are below this
};

}  // namespace epipe::data
