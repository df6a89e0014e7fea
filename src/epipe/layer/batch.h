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

inline constexpr std::int64_t kNoTarget = -100;  // in targets [B, T]: nothing is to be predicted there

// How many predictions its loss is the mean of: one for each sample, or, where targets are tokens, int64 [B, T], one for each that has
// another before it.
inline std::int64_t loss_terms(const Batch& batch) {
  const torch::Tensor& targets = batch.targets;
  if (!targets.defined() || targets.scalar_type() != torch::kInt64 || targets.dim() != 2) return batch.size();
  return targets.narrow(1, 1, targets.size(1) - 1).ne(kNoTarget).sum().item<std::int64_t>();
}

}  // namespace epipe::layer
