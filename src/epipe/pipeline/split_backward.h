#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::pipeline {

using layer::Tensors;

// The backward of one graph in two runs, first for its inputs, then for its weights. Both together compute what one backward does, bit
// for bit.
//
//   gradients of outputs -> linear -> relu -> linear -> gradients of inputs     run_inputs
//                             :                 :                               (: the gradient is kept)
//                           weights           weights                           run_weights
//
// Where weights join the road from outputs to inputs, the gradient that arrives is kept, so the second run computes nothing that the
// first one did: an operator computes either the gradient of its input or those of its weights. What it saved in the forward is held
// until the second run; what saved nothing for weights is freed by the first.
class SplitBackward {
 public:
  // The gradients of `inputs`, which are leaves, from `gradients` of `outputs`; undefined where there is none. Once.
  Tensors run_inputs(const Tensors& outputs, const Tensors& gradients, const Tensors& inputs);
  // Adds the gradients of the weights, as backward does. Once, after run_inputs().
  void run_weights();

 private:
  std::vector<torch::autograd::Edge> roots_;  // where the second run starts
  Tensors gradients_;                         // there
};

}  // namespace epipe::pipeline
