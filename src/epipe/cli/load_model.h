#pragma once

#include <string>

#include "epipe/model/registry.h"

namespace epipe::cli {

struct LoadedModel {
  std::string model;
  std::string weights{};  // empty: from the folder of hf:DIR, or from a TorchScript file
  std::string adapter{};  // a LoRA adapter; empty: none
  std::string device = "cpu";  // that exists: device_flag.h
};

// The whole model in evaluation mode, on its device, with all weights from a file, which also determines the number of classes. Prints
// notes to stderr.
// Throws std::invalid_argument and Failure.
model::Model load_model(const model::Registry& models, const LoadedModel& named, const data::DataSpec& data);

}  // namespace epipe::cli
