#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// Samples that are trained on together. The first dim of every tensor counts the samples.
struct Batch {
  Tensors inputs;                     // of the first layer
  Tensors side;                       // side inputs of every layer, e.g. the attention mask
  torch::Tensor targets;              // of the loss
  std::vector<std::int64_t> samples;  // their ids in the data set

  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
};

}  // namespace epipe::layer
