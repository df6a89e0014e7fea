#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

std::span<const Kind> Schedule::kinds(int j) const {
  static constexpr std::array kWhole = {Kind::kForward, Kind::kBackward};
  static constexpr std::array kSplit = {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeights};
  if (split[static_cast<std::size_t>(j)]) return kSplit;
  return kWhole;
}

Kind Schedule::kind_of(Direction direction, int j) const {
  for (const Kind kind : kinds(j)) {
    if (info(kind).direction == direction) return kind;
  }
  return Kind::kForward;  // not reached: every stage has a kind for each direction
}

std::optional<Action> Schedule::source(const Action& a) const {
  const auto direction = info(a.kind).direction;
  if (!direction) return Action{Kind::kBackwardInput, a.micro_batch, a.stage};
  const int before = previous_stage(*direction, a.stage);
  if (before < 0) return std::nullopt;
  if (before == placement.stages()) return Action{Kind::kForward, a.micro_batch, a.stage};  // the loss
  return Action{kind_of(*direction, before), a.micro_batch, before};
}

void drop_backwards(Schedule& schedule, int first_trained) {
  for (auto& actions : schedule.per_worker) {
    std::erase_if(actions, [&](const Action& a) { return a.kind != Kind::kForward && a.stage < first_trained; });
  }
}

}  // namespace epipe::schedule
