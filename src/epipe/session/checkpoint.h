#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace epipe::session {

using NamedTensors = std::map<std::string, torch::Tensor>;

// All that the rest of a run depends on. Data order, augmentation and dropout are functions of the step, so they need no state.
struct Checkpoint {
  std::uint64_t step = 0;  // steps done
  NamedTensors model;      // parameters and buffers, by full name
  NamedTensors optimizer;
  NamedTensors encoders;
  std::string config;  // fingerprint of what must not change; a resumed run compares it
};

// Steps of checkpoints, ascending.
struct CheckpointList {
  std::vector<std::uint64_t> whole;
  std::vector<std::uint64_t> damaged;  // or not readable
};

// Checkpoints of one run in `folder`, one sub-folder each, written whole or not at all; the newest two are kept, and none of a step beyond
// the newest: they are of a run that was begun anew.
//
//   folder/step-000000100/{model,optimizer,encoders}.safetensors    and checksums.txt, CRC-32C of each
//
// Only their owner can read them. Calls that write throw std::runtime_error.
class Checkpoints {
 public:
  // `max_bytes`: of all files in the folder; a checkpoint that does not fit beside the others is not begun. 0: no limit.
  explicit Checkpoints(std::string folder, std::uint64_t max_bytes = 0) : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  void save(const Checkpoint& checkpoint) const;
  // The steps of those that were written to their end, ascending.
  std::vector<std::uint64_t> steps() const;
  // Whether it is certain that there are none: not where the folder cannot be read.
  bool none() const;
  // The steps, after reading all of them: which are what was written, and which are not.
  CheckpointList verify() const;
  // Throws std::runtime_error when it is not there, cannot be read or is not what was written.
  Checkpoint load(std::uint64_t step) const;

 private:
  void require_room(const Checkpoint& checkpoint) const;
  void discard(std::uint64_t step) const;

  std::string folder_;
  std::uint64_t max_bytes_;
};

}  // namespace epipe::session
