#pragma once

#include "epipe/epipe.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe {

// Adapts a user's loss for a pipeline.
inline pipeline::Loss to_private(const Loss& loss) {
  return [loss](const layer::Tensors& outputs, const torch::Tensor& targets) -> pipeline::LossResult {
    const torch::Tensor output = outputs.at(0).is_floating_point() ? outputs[0].to(torch::kFloat32) : outputs[0];
    const LossResult result = loss(output, targets);
    return {result.sum, result.correct, result.predictions.defined() ? result.predictions : output.detach()};
  };
}

}  // namespace epipe
