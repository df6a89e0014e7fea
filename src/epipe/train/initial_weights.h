#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "epipe/model/architecture.h"
#include "epipe/model/weights.h"

namespace epipe::train {

struct WeightsFiles {
  std::string weights{};  // a file or a folder (model/weights.h); empty: none
  std::string adapter{};  // a folder (model/adapter.h); empty: none
};

// The initial weights of a run, one layer at a time: values by the seed, replaced by a file's tensors if it has them.
class InitialWeights {
 public:
  // Throws std::runtime_error if the files do not fit the model.
  InitialWeights(model::Architecture architecture, std::uint64_t seed, const WeightsFiles& files, model::NewParts new_parts);

  model::NamedTensors of_layer(std::size_t layer) const;
  // Notes for the user: parts that start fresh, tensors that were ignored.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  model::Architecture architecture_;
  std::uint64_t seed_;
  std::vector<std::shared_ptr<MappedFile>> files_;  // shared with the tensors in them
  model::NamedTensors from_file_;
  std::vector<std::string> notes_;
};

}  // namespace epipe::train
