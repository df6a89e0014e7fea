#pragma once

#include <torch/types.h>

#include "epipe/data/data_spec.h"
#include "epipe/layer/batch.h"
#include "epipe/model/model.h"
#include "epipe/pipeline/pipeline.h"
#include "support/models.h"

namespace epipe::testing {

inline const data::DataSpec kImages{data::DataSpec::Kind::kImages, {3, 12, 12}, 5, 0};
inline const data::DataSpec kText{data::DataSpec::Kind::kText, {9}, 3, 50};

// A batch of random samples that fits the data; ids from `first` on.
inline layer::Batch random_batch(const data::DataSpec& data, std::int64_t size, std::uint64_t seed, std::int64_t first = 0) {
  torch::manual_seed(seed);
  layer::Batch batch;
  std::vector<std::int64_t> shape = {size};
  shape.insert(shape.end(), data.shape.begin(), data.shape.end());
  if (data.kind == data::DataSpec::Kind::kText) {
    batch.inputs = {torch::randint(data.vocabulary, shape, torch::kInt64)};
    auto mask = torch::ones(shape);
    for (std::int64_t i = 0; i < size; ++i) mask[i].narrow(0, 9 - i % 4, i % 4).zero_();  // sentences of different lengths
    batch.side = {mask};
  } else {
    batch.inputs = {torch::randn(shape)};
  }
  batch.targets = torch::randint(data.classes, {size}, torch::kInt64);
  for (std::int64_t i = 0; i < size; ++i) batch.samples.push_back(first + i);
  return batch;
}

inline pipeline::LossResult classification_loss(const layer::Tensors& outputs, const torch::Tensor& targets) {
  const auto logits = outputs[0].to(torch::kFloat32);
  return {torch::nll_loss(torch::log_softmax(logits, -1), targets, {}, at::Reduction::Sum), logits.detach().argmax(-1).eq(targets).sum(),
          logits.detach()};
}

}  // namespace epipe::testing
