#include "epipe/model/model.h"

#include <fmt/format.h>

#include <stdexcept>

namespace epipe::model {

Model build(const Architecture& architecture) {
  return build(architecture, [](std::size_t) { return true; });
}

Model build(const Architecture& architecture, const std::function<bool(std::size_t layer)>& wanted) {
  Model model{architecture.name, {}};
  for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
    const LayerMaker& maker = architecture.layers[i];
    model.layers.push_back(wanted(i) ? maker.make() : nullptr);
    if (model.layers[i] && model.layers[i]->name() != maker.name) {
      throw std::logic_error(fmt::format("expected layer {}, got {}", maker.name, model.layers[i]->name()));
    }
  }
  if (architecture.share) architecture.share(model.layers);
  return model;
}

void initialize(const Model& model, std::uint64_t seed) {
  for (const auto& layer : model.layers) {
    if (layer) layer->initialize(seed);
  }
}

NamedTensors tensors_of(const Model& model) {
  NamedTensors all;
  for (const auto& layer : model.layers) {
    if (!layer) continue;
    for (const auto& item : layer->named_parameters()) all[layer->full_name(item.key())] = item.value().detach();
    for (const auto& item : layer->named_buffers()) all[layer->full_name(item.key())] = item.value();
  }
  return all;
}

}  // namespace epipe::model
