#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "epipe/model/architecture.h"

namespace epipe::model {

// The children of a Sequential as layers, under its names ("0.weight"). They share its parameters and buffers: training them trains the
// Sequential. BatchNorm becomes the deferred one, Dropout the keyed one, also within nested Sequentials whose forward only calls their
// children, for which `passes_through` returns true. Throws std::invalid_argument, with the child's name, for modules that cannot be
// replaced: a BatchNorm or Dropout inside a module with its own forward, other random modules, and children that share weights.
using PassesThrough = std::function<bool(const torch::nn::SequentialImpl& nested)>;
Architecture layers_of(const torch::nn::Sequential& net, const PassesThrough& passes_through);

}  // namespace epipe::model
