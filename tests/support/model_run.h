#pragma once

#include <torch/types.h>

#include "epipe/layer/batch.h"
#include "support/models.h"

namespace epipe::testing {

inline layer::ForwardContext context_of(const layer::Batch& batch, bool training) {
  layer::ForwardContext at;
  at.training = training;
  at.samples = batch.samples;
  at.side = batch.side;
  return at;
}

// One forward through all layers.
inline torch::Tensor forward(const model::Model& model, const layer::Batch& batch, bool training) {
  layer::Tensors x = batch.inputs;
  const auto at = context_of(batch, training);
  for (const auto& layer : model.layers) x = layer->forward(x, at);
  return x[0];
}

// The largest difference, in units of the largest expected value.
inline double relative_difference(const torch::Tensor& actual, const torch::Tensor& expected) {
  const double scale = expected.numel() > 0 ? expected.abs().max().item<double>() : 0;
  const double difference = expected.numel() > 0 ? (actual - expected).abs().max().item<double>() : 0;
  return difference == 0 ? 0 : difference / scale;
}

}  // namespace epipe::testing
