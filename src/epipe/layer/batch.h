#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// Samples that are trained on together. The first dim of every tensor counts the samples.
struct Batch {
  Tensors inputs;                     // for the first layer
  Tensors side;                       // side inputs for every layer, e.g. the attention mask
  torch::Tensor targets;              // for the loss
  std::vector<std::int64_t> samples;  // their ids in the data set

  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
};

inline constexpr std::int64_t kNoTarget = -100;  // in targets [B, T]: nothing is to be predicted there

// The number of predictions its loss averages over: one per sample or, if the targets are tokens, int64 [B, T], one per token that has
// another before it.
inline std::int64_t loss_terms(const Batch& batch) {
  const torch::Tensor& targets = batch.targets;
  if (!targets.defined() || targets.scalar_type() != torch::kInt64 || targets.dim() != 2) return batch.size();
  return targets.narrow(1, 1, targets.size(1) - 1).ne(kNoTarget).sum().item<std::int64_t>();
}

}  // namespace epipe::layer
