#pragma once

#include "epipe/epipe.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe {

// A user's loss as a pipeline calls it.
inline pipeline::Loss to_private(const Loss& loss) {
  return [loss](const layer::Tensors& outputs, const torch::Tensor& targets) -> pipeline::LossResult {
    const LossResult result = loss(outputs.at(0), targets);
    return {result.sum, result.correct, result.predictions.defined() ? result.predictions : outputs[0].detach()};
  };
}

}  // namespace epipe
