#pragma once

#include <string>

#include "epipe/model/registry.h"

namespace epipe::cli {

struct LoadedModel {
  std::string model;
  std::string weights{};  // empty: those in the folder of hf:DIR, or of a TorchScript file
  std::string adapter{};  // a LoRA adapter; empty: none
};

// The whole model in evaluation, with every weight from a file; the number of classes is the weights'. Notes go to stderr. Throws
// std::invalid_argument and Failure.
model::Model load_model(const model::Registry& models, const LoadedModel& named, const data::DataSpec& data);

}  // namespace epipe::cli
