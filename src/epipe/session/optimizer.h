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

// Applies gradients to the parameters of one worker. What it remembers between steps is its own; a checkpoint keeps it as tensors.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // With the gradients times `scale`. Uses them up: they are gone afterwards.
  virtual void step(double learning_rate, double scale) = 0;
  // What a step multiplies the elements of this parameter's gradient by, up to factors that all gradients share; undefined: nothing. Where
  // that depends on steps before and there were none, by the gradient itself, with one factor for all its elements.
  virtual torch::Tensor scale(const std::string& name, const torch::Tensor& gradient) const = 0;
  // Everything the next step depends on.
  virtual model::NamedTensors state() const = 0;
  virtual void set_state(const model::NamedTensors& state) = 0;
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedParameters)>;

}  // namespace epipe::session
