#include "epipe/schedule/arrivals.h"

#include <algorithm>

namespace epipe::schedule {

double Arrivals::add(const Action& action, double end) {
  const auto direction = info(action.kind).direction;
  if (!direction) return end;
  const int to = next_stage(*direction, action.stage);
  if (to < 0) return end;
  if (to == placement_.stages()) {  // the loss
    road(Direction::kBackward, action.stage).arrives.push_back(end);
    return end;
  }
  Road& taken = road(*direction, to);
  const int cut = cut_after(*direction, action.stage);
  if (placement_.crosses(cut)) end = taken.link_free = std::max(taken.link_free, end) + costs_.transfer(*direction, cut);
  taken.arrives.push_back(end);
  return end;
}

std::optional<double> Arrivals::of(const Action& action) const {
  const auto direction = info(action.kind).direction;
  if (!direction || previous_stage(*direction, action.stage) < 0) return 0;
  const auto& arrives = roads_[static_cast<std::size_t>(*direction)][static_cast<std::size_t>(action.stage)].arrives;
  const auto i = static_cast<std::size_t>(action.micro_batch);
  return i < arrives.size() ? std::optional(arrives[i]) : std::nullopt;
}

}  // namespace epipe::schedule
