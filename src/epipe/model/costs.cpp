#include "epipe/model/costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
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

std::string cannot_be_cut(const Model& model) {
  return fmt::format(
      "{} is one layer and cannot be cut: {}; save torch.jit.script(nn.Sequential(...)) to cut between its children, or train it whole, "
      "without --cuts and on one worker",
      model.name, model.single_layer_reason);
}

std::size_t resolve_cut(const std::string& text, const Model& model) {
  if (!model.single_layer_reason.empty()) throw std::invalid_argument(cannot_be_cut(model));
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

}  // namespace epipe::model
