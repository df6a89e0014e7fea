#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "epipe/model/registry.h"

namespace epipe::cli {

// `epipe info --model M --cuts ...`
struct ModelInfoFlags {
  std::string model;
  std::vector<std::string> cuts;
  std::vector<std::int64_t> shape;  // of one sample; empty: 3,224,224, or 128 tokens
  std::int64_t classes = 0;         // 0: 1000, or 2 for text
  std::int64_t vocabulary = 64;     // for models without their own
};

void add_model_info_flags(CLI::App& command, ModelInfoFlags& flags);

// Prints parameters and FLOPs of every layer and stage, and the tensors at each cut, for one sample: tables, or one JSON object.
void print_model_info(const model::Registry& models, const ModelInfoFlags& flags, bool json);

}  // namespace epipe::cli
