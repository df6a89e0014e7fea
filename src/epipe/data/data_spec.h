#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::data {

// What a model, a loss and a metric must know about the data.
struct DataSpec {
  enum class Kind : std::uint8_t { kImages, kText };
  Kind kind = Kind::kImages;
  std::vector<std::int64_t> shape;                  // of one sample: [C, H, W], [features], or [T] token ids
  std::int64_t classes = 2;                         // outputs of the model; regression: values per sample
  std::int64_t vocabulary = 0;                      // text: token ids are below this
  bool regression = false;                          // targets are float32 [B, classes]; otherwise int64 [B]
  std::vector<std::string> metrics = {"accuracy"};  // for the validation set, the main one first; see train/task_metrics.h
  bool next_token = false;  // targets are int64 [B, T]: the tokens themselves, layer::kNoTarget where nothing is predicted

  std::int64_t max_length() const { return kind == Kind::kText ? shape.at(0) : 0; }
};

}  // namespace epipe::data
