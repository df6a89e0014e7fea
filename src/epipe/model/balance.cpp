#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "epipe/model/costs.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

std::vector<double> flops_of_layers(const Architecture& architecture, const Tensors& sample, const ForwardContext& at) {
  std::vector<double> flops;
  for (const LayerCost& cost : layer_costs(architecture, sample, at)) flops.push_back(cost.flops);
  return flops;
}

std::vector<double> seconds_of_layers(const Architecture& architecture, const Tensors& sample, const ForwardContext& at, int rounds) {
  std::vector<double> seconds;
  for (const LayerTiming& timing : time_layers(architecture, sample, at, {.rounds = rounds}))
    seconds.push_back(timing.forward + timing.backward);
  return seconds;
}

// The layer boundary nearest to each even share of the costs, leaving at least one layer for every stage.
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

void check_stages(const Architecture& architecture, int stages) {
  if (stages > 1 && !architecture.single_layer_reason.empty()) throw std::invalid_argument(cannot_be_cut(architecture));
  if (stages < 1 || static_cast<std::size_t>(stages) > architecture.layers.size()) {
    throw std::invalid_argument(
        fmt::format("{} has {} layers and cannot be cut into {} stages", architecture.name, architecture.layers.size(), stages));
  }
}

}  // namespace

std::vector<std::size_t> balanced_cuts(const Architecture& architecture, const Tensors& sample, const ForwardContext& at, int stages) {
  check_stages(architecture, stages);
  return even_cuts(flops_of_layers(architecture, sample, at), stages);
}

std::vector<std::size_t> measured_cuts(const Architecture& architecture, const Tensors& sample, const ForwardContext& at, int stages) {
  check_stages(architecture, stages);
  constexpr int kRounds = 5;
  return even_cuts(seconds_of_layers(architecture, sample, at, kRounds), stages);
}

}  // namespace epipe::model
