#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "epipe/layer/modules.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

struct Entry {
  std::string_view name;
  Layers (*make)(const data::DataSpec&);
};

constexpr std::array kZoo = {
    Entry{"mlp", make_mlp},
    Entry{"cnn", make_cnn},
    Entry{"transformer", make_transformer},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kZoo) names.emplace_back(entry.name);
  return names;
}

Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) {
  const auto* const found = std::find_if(kZoo.begin(), kZoo.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == kZoo.end())
    throw std::invalid_argument(fmt::format("unknown model \"{}\"; known are {}", name, fmt::join(model_names(), ", ")));
  Model model{std::string(name), found->make(data)};
  for (const auto& layer : model.layers) layer::initialize(*layer, seed);
  return model;
}

std::vector<std::size_t> balanced_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages) {
  const std::size_t n = model.layers.size();
  if (stages < 1 || static_cast<std::size_t>(stages) > n) {
    throw std::invalid_argument(fmt::format("{} has {} layers and cannot be cut into {} stages", model.name, n, stages));
  }
  const torch::NoGradGuard no_grad;
  std::vector<double> upto = {0};  // FLOPs of the first i layers
  layer::Tensors x = sample;
  for (const auto& layer : model.layers) {
    const layer::Tensors y = layer->forward(x, at);
    upto.push_back(upto.back() + layer->flops(x, y));
    x = y;
  }
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
