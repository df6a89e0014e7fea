#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

// Checkpoints of one run in `folder`, one sub-folder each, written whole or not at all; the newest two are kept, and none of a step beyond
// the newest: they are of a run that was begun anew.
//
//   folder/step-000000100/{model,optimizer,encoders}.safetensors    and checksums.txt, CRC-32C of each
class Checkpoints {
 public:
  explicit Checkpoints(std::string folder) : folder_(std::move(folder)) {}

  void save(const Checkpoint& checkpoint) const;
  // The steps of the complete ones, ascending.
  std::vector<std::uint64_t> steps() const;
  // Throws std::runtime_error when it is not there, cannot be read or is not what was written.
  Checkpoint load(std::uint64_t step) const;

 private:
  void discard(std::uint64_t step) const;

  std::string folder_;
};

}  // namespace epipe::train
