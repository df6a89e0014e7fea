#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::pipeline {

using layer::Tensors;

// The backward of one graph in two runs, first for its inputs, then for its weights. Together they compute the same as one backward, bit
// for bit.
//
//   gradients of outputs -> linear -> relu -> linear -> gradients of inputs     run_inputs
//                             :                 :                               (: the gradient is kept)
//                           weights           weights                           run_weights
//
// Where weights join the path from outputs to inputs, the incoming gradient is kept, so the second run repeats nothing: an operator
// computes either its input gradient or its weight gradients. Tensors it saved in the forward are held until the second run; operators
// without weights free theirs in the first.
class SplitBackward {
 public:
  // The gradients of `inputs`, which are leaves, from `gradients` of `outputs`; undefined if there is none. Call once.
  Tensors run_inputs(const Tensors& outputs, const Tensors& gradients, const Tensors& inputs);
  // Accumulates the gradients of the weights, like backward. Call once, after run_inputs().
  void run_weights();

 private:
  std::vector<torch::autograd::Edge> roots_;  // where the second run starts
  Tensors gradients_;                         // at the roots
};

}  // namespace epipe::pipeline
