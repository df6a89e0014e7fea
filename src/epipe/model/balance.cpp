#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/model/costs.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

std::vector<double> flops_of_layers(const Model& model, const Tensors& sample, const ForwardContext& at) {
  std::vector<double> flops;
  for (const LayerCost& cost : layer_costs(model, sample, at)) flops.push_back(cost.flops);
  return flops;
}

// Forward and backward of one layer by itself. Returns its outputs.
Tensors time_layer(layer::Layer& layer, const Tensors& inputs, const ForwardContext& at, double& seconds) {
  Tensors leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().requires_grad_(input.is_floating_point()));
  const Stopwatch watch;
  const Tensors outputs = layer.forward(leaves, at);
  torch::Tensor total;
  for (const auto& output : outputs) {
    if (output.requires_grad()) total = total.defined() ? total + output.sum() : output.sum();
  }
  if (total.defined()) total.backward();
  seconds = watch.seconds();
  layer.discard_batch();
  for (auto& parameter : layer.parameters()) parameter.mutable_grad() = torch::Tensor();
  return outputs;
}

std::vector<double> seconds_of_layers(const Model& model, const Tensors& sample, const ForwardContext& at, int rounds) {
  std::vector<std::vector<double>> seconds(model.layers.size(), std::vector<double>(static_cast<std::size_t>(rounds)));
  for (int round = 0; round < rounds; ++round) {
    Tensors x = sample;
    for (std::size_t l = 0; l < model.layers.size(); ++l)
      x = time_layer(*model.layers[l], x, at, seconds[l][static_cast<std::size_t>(round)]);
  }
  std::vector<double> medians;
  for (auto& of_layer : seconds) medians.push_back(median(std::move(of_layer)));
  return medians;
}

// The layer border nearest to each even share of the costs, leaving at least one layer for every stage.
std::vector<std::size_t> even_cuts(const std::vector<double>& costs, int stages) {
  const std::size_t n = costs.size();
  std::vector<double> upto = {0};  // of the first i layers
  for (const double cost : costs) upto.push_back(upto.back() + cost);
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

void check_stages(const Model& model, int stages) {
  if (stages > 1 && !model.single_layer_reason.empty()) throw std::invalid_argument(cannot_be_cut(model));
  if (stages < 1 || static_cast<std::size_t>(stages) > model.layers.size()) {
    throw std::invalid_argument(fmt::format("{} has {} layers and cannot be cut into {} stages", model.name, model.layers.size(), stages));
  }
}

}  // namespace

std::vector<std::size_t> balanced_cuts(const Model& model, const Tensors& sample, const ForwardContext& at, int stages) {
  check_stages(model, stages);
  return even_cuts(flops_of_layers(model, sample, at), stages);
}

std::vector<std::size_t> measured_cuts(const Model& model, const Tensors& sample, const ForwardContext& at, int stages) {
  check_stages(model, stages);
  constexpr int kRounds = 5;
  return even_cuts(seconds_of_layers(model, sample, at, kRounds), stages);
}

}  // namespace epipe::model
