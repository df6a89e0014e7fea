#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/model/named_tensors.h"

namespace epipe::session {

using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

// Applies gradients to the parameters of one worker. Its state between steps is private; checkpoints store it as tensors.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Uses the gradients times `scale`, and clears them.
  virtual void step(double learning_rate, double scale) = 0;
  // The factor for each element of this parameter's gradient in a step, up to factors common to all gradients; undefined: 1. If it depends
  // on earlier steps and there are none, it is derived from the gradient itself, with one factor for all elements.
  virtual torch::Tensor scale(const std::string& name, const torch::Tensor& gradient) const = 0;
  // Everything the next step depends on.
  virtual model::NamedTensors state() const = 0;
  virtual void set_state(const model::NamedTensors& state) = 0;
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedParameters)>;

}  // namespace epipe::session
