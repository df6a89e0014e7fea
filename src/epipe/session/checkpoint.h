#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace epipe::session {

using NamedTensors = std::map<std::string, torch::Tensor>;

// Everything the rest of a run depends on. Data order, augmentation and dropout are functions of the step, so they need no state.
struct Checkpoint {
  std::uint64_t step = 0;  // steps done
  NamedTensors model;      // parameters that are trained and buffers, by full name
  NamedTensors optimizer;
  NamedTensors encoders;
  std::string config;  // fingerprint of settings that must not change; a resumed run compares it
  // The other parameters, which no step changes; null: there are none. Shared with later checkpoints of the run: the same object, the same
  // values, so that they are written once.
  std::shared_ptr<const NamedTensors> frozen{};
};

// The steps of checkpoints, ascending.
struct CheckpointList {
  std::vector<std::uint64_t> whole;
  std::vector<std::uint64_t> damaged;  // or not readable
};

// Checkpoints of one run in `folder`, one subfolder each, written completely or not at all. Keeps the newest two, and removes checkpoints
// of later steps, which belong to a run that was started over.
//
//   folder/step-000000100/{model,optimizer,encoders}.safetensors    and checksums.txt, CRC-32C of each and of
//   folder/frozen-1a2b3c4d/model.safetensors                        which all checkpoints with these frozen parameters share
//
// Only their owner can read them. Calls that write throw std::runtime_error.
class Checkpoints {
 public:
  // `max_bytes`: limit for all files in the folder; a checkpoint that would exceed it is not begun. 0: no limit.
  explicit Checkpoints(std::string folder, std::uint64_t max_bytes = 0) : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  void save(const Checkpoint& checkpoint);
  // The steps of complete checkpoints, ascending.
  std::vector<std::uint64_t> steps() const;
  // Whether there are certainly none; false if the folder cannot be read.
  bool none() const;
  // Reads all checkpoints and returns the steps of intact and of damaged ones.
  CheckpointList verify() const;
  // Throws std::runtime_error if it is missing, cannot be read or is damaged.
  Checkpoint load(std::uint64_t step) const;

 private:
  void require_frozen(const Checkpoint& checkpoint);
  void require_room(const Checkpoint& checkpoint, std::uint64_t frozen_bytes) const;
  void discard(const std::string& name) const;
  void discard_unused_frozen() const;

  std::string folder_;
  std::uint64_t max_bytes_;
  std::shared_ptr<const NamedTensors> frozen_;  // of the last checkpoint that was saved; see Checkpoint::frozen
  std::uint32_t frozen_checksum_ = 0;           // of its file, which is there
};

}  // namespace epipe::session
