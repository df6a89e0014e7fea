#include "epipe/model/costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <stdexcept>

namespace epipe::model {

layer::Tensors forward_layer_by_layer(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                      const LayerObserver& observe) {
  const torch::NoGradGuard no_grad;
  layer::Tensors x = sample;
  for (const LayerMaker& maker : architecture.layers) {
    const auto layer = maker.make();
    layer::Tensors y = layer->forward(x, at);
    if (observe) observe(*layer, x, y);
    x = std::move(y);
  }
  return x;
}

std::vector<LayerCost> layer_costs(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at) {
  std::vector<LayerCost> costs;
  forward_layer_by_layer(architecture, sample, at, [&](const layer::Layer& layer, const layer::Tensors& x, const layer::Tensors& y) {
    LayerCost cost{layer.name(), 0, layer.flops(x, y), {}};
    for (const auto& parameter : layer.parameters()) cost.parameters += parameter.numel();
    for (const auto& tensor : y) cost.shapes.push_back(tensor.sizes().vec());
    costs.push_back(std::move(cost));
  });
  return costs;
}

std::string cannot_be_cut(const Architecture& architecture) {
  return fmt::format(
      "{} is one layer and cannot be cut: {}; save torch.jit.script(nn.Sequential(...)) to cut between its children, or train it whole, "
      "without --cuts and on one worker",
      architecture.name, architecture.single_layer_reason);
}

std::size_t resolve_cut(const std::string& text, const Architecture& architecture) {
  if (!architecture.single_layer_reason.empty()) throw std::invalid_argument(cannot_be_cut(architecture));
  for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
    if (architecture.layers[i].name == text) return i;
  }
  std::size_t index = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (status == std::errc() && stop == text.data() + text.size()) return index;
  std::vector<std::string> names;
  for (const LayerMaker& maker : architecture.layers) names.push_back(maker.name);
  throw std::invalid_argument(fmt::format("cut \"{}\" is neither a layer index nor one of {}", text, fmt::join(names, ", ")));
}

}  // namespace epipe::model
