#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "epipe/model/architecture.h"

namespace epipe::model {

// The children of a Sequential as layers, under its names ("0.weight"). They hold its own parameters and buffers: who trains them trains
// the Sequential. BatchNorm becomes the deferred one, Dropout the keyed one, also within nested Sequentials whose forward does nothing but
// call their children, which `passes_through` says of a module. Throws std::invalid_argument that names the child for what cannot be
// replaced: one of these inside a module whose forward is its own, other random modules, and children that share weights.
using PassesThrough = std::function<bool(const torch::nn::SequentialImpl& nested)>;
Architecture layers_of(const torch::nn::Sequential& net, const PassesThrough& passes_through);

}  // namespace epipe::model
