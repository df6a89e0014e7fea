#include "epipe/schedule/arrivals.h"

#include <algorithm>

namespace epipe::schedule {

double Arrivals::add(const Action& action, double end) {
  const bool forward = action.kind == Kind::kForward;
  const auto j = static_cast<std::size_t>(action.stage);
  if (forward && j + 1 == forward_.size()) {  // the loss
    backward_[j].arrives.push_back(end);
    return end;
  }
  if (!forward && j == 0) return end;
  Road& road = forward ? forward_[j + 1] : backward_[j - 1];
  const int cut = forward ? action.stage : action.stage - 1;
  if (placement_.crosses(cut)) end = road.link_free = std::max(road.link_free, end) + costs_.transfer(action.kind, cut);
  road.arrives.push_back(end);
  return end;
}

std::optional<double> Arrivals::of(const Action& action) const {
  if (action.kind == Kind::kForward && action.stage == 0) return 0;
  const auto& arrives = (action.kind == Kind::kForward ? forward_ : backward_)[static_cast<std::size_t>(action.stage)].arrives;
  const auto i = static_cast<std::size_t>(action.micro_batch);
  return i < arrives.size() ? std::optional(arrives[i]) : std::nullopt;
}

}  // namespace epipe::schedule
