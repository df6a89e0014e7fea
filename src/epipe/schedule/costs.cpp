#include "epipe/schedule/costs.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

double Costs::of(const Action& action) const {
  return (action.kind == Kind::kForward ? forward : backward)[static_cast<std::size_t>(action.stage)];
}

double Costs::transfer(Kind direction, int cut) const {
  return (direction == Kind::kForward ? transfer_forward : transfer_backward)[static_cast<std::size_t>(cut)];
}

Costs equal_costs(int stages, double forward, double backward, double transfer) {
  const auto n = static_cast<std::size_t>(stages);
  return {std::vector<double>(n, forward), std::vector<double>(n, backward), std::vector<double>(n - 1, transfer),
          std::vector<double>(n - 1, transfer)};
}

Result<void> check(const Costs& costs, int stages) {
  EPIPE_TRY(check_values(costs.forward, stages, "forward", "stage"));
  EPIPE_TRY(check_values(costs.backward, stages, "backward", "stage"));
  EPIPE_TRY(check_values(costs.transfer_forward, stages - 1, "forward transfer", "cut"));
  EPIPE_TRY(check_values(costs.transfer_backward, stages - 1, "backward transfer", "cut"));
  return {};
}

}  // namespace epipe::schedule
