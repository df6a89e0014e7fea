#include "epipe/model/costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace epipe::model {

std::vector<LayerCost> layer_costs(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at) {
  const torch::NoGradGuard no_grad;
  std::vector<LayerCost> costs;
  layer::Tensors x = sample;
  for (const auto& layer : model.layers) {
    const layer::Tensors y = layer->forward(x, at);
    LayerCost cost{layer->name(), 0, layer->flops(x, y), {}};
    for (const auto& parameter : layer->parameters()) cost.parameters += parameter.numel();
    for (const auto& tensor : y) cost.shapes.push_back(tensor.sizes().vec());
    costs.push_back(std::move(cost));
    x = y;
  }
  return costs;
}

std::size_t resolve_cut(const std::string& text, const Model& model) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i]->name() == text) return i;
  }
  std::size_t index = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (status == std::errc() && stop == text.data() + text.size()) return index;
  std::vector<std::string> names;
  for (const auto& layer : model.layers) names.push_back(layer->name());
  throw std::invalid_argument(fmt::format("cut \"{}\" is neither a layer index nor one of {}", text, fmt::join(names, ", ")));
}

std::vector<std::size_t> balanced_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages) {
  const std::size_t n = model.layers.size();
  if (stages < 1 || static_cast<std::size_t>(stages) > n) {
    throw std::invalid_argument(fmt::format("{} has {} layers and cannot be cut into {} stages", model.name, n, stages));
  }
  std::vector<double> upto = {0};  // FLOPs of the first i layers
  for (const LayerCost& cost : layer_costs(model, sample, at)) upto.push_back(upto.back() + cost.flops);
  // The layer border nearest to each even share, leaving at least one layer for every stage.
  std::vector<std::size_t> cuts;
  for (int j = 1; j < stages; ++j) {
    const std::size_t first = (cuts.empty() ? 0 : cuts.back()) + 1;
    const std::size_t last = n - static_cast<std::size_t>(stages - j);
    const double share = upto.back() * j / stages;
    std::size_t best = first;
    for (std::size_t i = first; i <= last; ++i) {
      if (std::abs(upto[i] - share) < std::abs(upto[best] - share)) best = i;
    }
    cuts.push_back(best);
  }
  return cuts;
}

}  // namespace epipe::model
