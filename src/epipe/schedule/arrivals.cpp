#include "epipe/schedule/arrivals.h"

#include <algorithm>

namespace epipe::schedule {

double Arrivals::add(const Action& action, double end) {
  const auto direction = info(action.kind).direction;
  if (!direction) return end;
  const int to = next_stage(*direction, action.stage);
  if (to < 0) return end;
  if (to == placement_.stages()) {  // the loss
    arrives(Direction::kBackward, action.stage).push_back(end);
    return end;
  }
  const int cut = cut_after(*direction, action.stage);
  if (placement_.crosses(cut)) {
    double& free = link_free(action.stage, to);
    free = std::max(free, end) + costs_.transfer(*direction, cut);
    end = free + costs_.delay_of(cut);
  }
  arrives(*direction, to).push_back(end);
  return end;
}

std::optional<double> Arrivals::of(const Action& action) const {
  const auto direction = info(action.kind).direction;
  if (!direction || previous_stage(*direction, action.stage) < 0) return 0;
  const auto& arrives = arrives_[static_cast<std::size_t>(*direction)][static_cast<std::size_t>(action.stage)];
  const auto i = static_cast<std::size_t>(action.micro_batch);
  return i < arrives.size() ? std::optional(arrives[i]) : std::nullopt;
}

}  // namespace epipe::schedule
