#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace epipe::train {

using NamedTensors = std::map<std::string, torch::Tensor>;

// All that the rest of a run depends on. Data order, augmentation and dropout are functions of the step, so they need no state.
struct Checkpoint {
  std::uint64_t step = 0;  // steps done
  NamedTensors model;      // parameters and buffers, by full name
  NamedTensors optimizer;
  NamedTensors encoders;
  std::string config;  // fingerprint of what must not change; a resumed run compares it
};

// Checkpoints of one run in `folder`, one sub-folder each, written whole or not at all; the newest two are kept.
//
//   folder/step-000100/{model,optimizer,encoders}.safetensors
class Checkpoints {
 public:
  explicit Checkpoints(std::string folder) : folder_(std::move(folder)) {}

  void save(const Checkpoint& checkpoint) const;
  // The newest one that is complete; nullopt where there is none. Throws std::runtime_error when it cannot be read.
  std::optional<Checkpoint> load_newest() const;

 private:
  std::string folder_;
};

}  // namespace epipe::train
