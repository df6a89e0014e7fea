#include "epipe/schedule/costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace epipe::schedule {
namespace {

Result<void> check_values(const std::vector<double>& values, int count, std::string_view what, std::string_view where) {
  if (values.size() != static_cast<std::size_t>(count)) {
    return Error{ErrorCode::kBadSchedule, fmt::format("expected {} {} costs, one for each {}, got {}", count, what, where, values.size())};
  }
  const auto bad = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value) || value < 0; });
  if (bad == values.end()) return {};
  return Error{ErrorCode::kBadSchedule, fmt::format("a {} cost must be a number of at least 0, got {}", what, *bad)};
}

// By kind; where a value is left out, it is this part of the whole backward.
struct Field {
  std::vector<double> Costs::*values;
  std::string_view name;
  double of_backward;
};
constexpr std::array<Field, kKinds.size()> kFields = {{{&Costs::forward, "forward", 0},
                                                       {&Costs::backward, "backward", 1},
                                                       {&Costs::backward_input, "backward input", 0.5},
                                                       {&Costs::backward_weights, "backward weights", 0.5}}};
constexpr std::array kTransfers = {&Costs::transfer_forward, &Costs::transfer_backward};  // by direction

}  // namespace

double Costs::of(Kind kind, int stage) const {
  const Field& field = kFields[static_cast<std::size_t>(kind)];
  const auto& values = this->*field.values;
  const auto j = static_cast<std::size_t>(stage);
  return values.empty() ? field.of_backward * backward[j] : values[j];
}

double Costs::transfer(Direction direction, int cut) const {
  return (this->*kTransfers[static_cast<std::size_t>(direction)])[static_cast<std::size_t>(cut)];
}

Costs equal_costs(int stages, double forward, double backward, double transfer) {
  const auto n = static_cast<std::size_t>(stages);
  return {std::vector<double>(n, forward),
          std::vector<double>(n, backward),
          std::vector<double>(n - 1, transfer),
          std::vector<double>(n - 1, transfer),
          {},
          {},
          {}};
}

Costs rounded(Costs costs) {
  for (auto values : {&Costs::forward, &Costs::backward, &Costs::transfer_forward, &Costs::transfer_backward, &Costs::backward_input,
                      &Costs::backward_weights, &Costs::delay}) {
    for (double& value : costs.*values) value = std::strtod(fmt::format("{:.3g}", value).c_str(), nullptr);
  }
  return costs;
}

Costs slot_costs(int stages, bool splits_backward) { return equal_costs(stages, 1, splits_backward ? 2 : 1); }

Result<void> check(const Costs& costs, int stages) {
  for (const Kind kind : kKinds) {
    const Field& field = kFields[static_cast<std::size_t>(kind)];
    const auto& values = costs.*field.values;
    const bool left_out = costs.backward_input.empty() && costs.backward_weights.empty() && field.of_backward == 0.5;
    if (!left_out) EPIPE_TRY(check_values(values, stages, field.name, "stage"));
  }
  EPIPE_TRY(check_values(costs.transfer_forward, stages - 1, "forward transfer", "cut"));
  EPIPE_TRY(check_values(costs.transfer_backward, stages - 1, "backward transfer", "cut"));
  if (!costs.delay.empty()) EPIPE_TRY(check_values(costs.delay, stages - 1, "delay", "cut"));
  return {};
}

}  // namespace epipe::schedule
