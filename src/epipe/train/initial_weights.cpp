#include "epipe/train/initial_weights.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/model/adapter.h"
#include "epipe/session/local_trainer.h"

namespace epipe::train {

InitialWeights::InitialWeights(model::Architecture architecture, std::uint64_t seed, const WeightsFiles& files, model::NewParts new_parts)
    : architecture_(std::move(architecture)), seed_(seed) {
  if (files.weights.empty()) return;
  auto mapped = model::map_weights(files.weights);
  if (!mapped) throw std::runtime_error(mapped.error().message);
  files_ = std::move(mapped.value().files);
  auto& tensors = mapped.value().tensors;
  if (!files.adapter.empty()) {
    auto adapter = model::read_adapter(files.adapter);
    if (!adapter) throw std::runtime_error(adapter.error().message);
    for (auto& [name, tensor] : adapter.value().tensors) tensors.insert_or_assign(name, tensor);
  }
  auto fitted = model::fit_weights(architecture_, std::move(tensors), new_parts);
  if (!fitted) throw std::runtime_error(fmt::format("{}: {}", files.weights, fitted.error().message));
  from_file_ = std::move(fitted.value().tensors);
  notes_ = std::move(fitted.value().notes);
}

model::NamedTensors InitialWeights::of_layer(std::size_t layer) const {
  const auto made = architecture_.layers.at(layer).make();
  made->initialize(seed_);
  model::NamedTensors weights = session::weights_of(*made);
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : weights) {
    if (const auto found = from_file_.find(name); found != from_file_.end()) tensor.copy_(found->second);
  }
  for (const auto& file : files_) file->forget_pages();
  return weights;
}

}  // namespace epipe::train
