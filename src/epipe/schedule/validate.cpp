#include "epipe/schedule/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "epipe/schedule/replay.h"

namespace epipe::schedule {
namespace {

// Where each action stands in its worker's list, by kind, micro-batch and stage.
class Index {
 public:
  explicit Index(const Schedule& schedule)
      : stages_(schedule.placement.worker_of.size()), at_(kKinds.size() * stages_ * static_cast<std::size_t>(schedule.chunks)) {}

  std::optional<std::size_t>& operator[](const Action& a) {
    const auto row = kKinds.size() * static_cast<std::size_t>(a.micro_batch) + static_cast<std::size_t>(a.kind);
    return at_[row * stages_ + static_cast<std::size_t>(a.stage)];
  }

 private:
  std::size_t stages_;
  std::vector<std::optional<std::size_t>> at_;
};

// By kind: why what the micro-batch runs before it on the same stage comes first.
constexpr std::array<std::string_view, kKinds.size()> kWhyBefore = {"", "a forward comes before its backward",
                                                                    "a forward comes before its backward",
                                                                    "the gradient of the input comes before those of the weights"};

std::vector<std::string_view> names(std::span<const Kind> kinds) {
  std::vector<std::string_view> all;
  for (const Kind kind : kinds) all.push_back(letters(kind));
  return all;
}

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule), index_(schedule) {}

  Result<void> run() {
    EPIPE_TRY(for_each_action(&Validator::check_place));
    EPIPE_TRY(check_complete());
    EPIPE_TRY(for_each_action(&Validator::check_order));
    return check_live();
  }

 private:
  std::size_t worker_of(int stage) const {
    return static_cast<std::size_t>(schedule_.placement.worker_of[static_cast<std::size_t>(stage)]);
  }

  Result<void> for_each_action(Result<void> (Validator::*check)(std::size_t worker, std::size_t action)) {
    for (std::size_t w = 0; w < schedule_.per_worker.size(); ++w) {
      for (std::size_t k = 0; k < schedule_.per_worker[w].size(); ++k) EPIPE_TRY((this->*check)(w, k));
    }
    return {};
  }

  Result<void> check_place(std::size_t worker, std::size_t action) {
    const Action& a = schedule_.per_worker[worker][action];
    if (a.micro_batch < 0 || a.micro_batch >= schedule_.chunks || a.stage < 0 || a.stage >= schedule_.placement.stages()) {
      return action_error(schedule_, worker, action,
                          fmt::format("there are {} micro-batches and {} stages", schedule_.chunks, schedule_.placement.stages()));
    }
    if (worker_of(a.stage) != worker) {
      return action_error(schedule_, worker, action, fmt::format("stage {} is on worker {}", a.stage, worker_of(a.stage)));
    }
    const auto kinds = schedule_.kinds(a.stage);
    if (std::find(kinds.begin(), kinds.end(), a.kind) == kinds.end()) {
      return action_error(schedule_, worker, action, fmt::format("stage {} runs {}", a.stage, fmt::join(names(kinds), ", ")));
    }
    if (index_[a]) return action_error(schedule_, worker, action, fmt::format("runs a second time; action {} is the same", *index_[a]));
    index_[a] = action;
    return {};
  }

  Result<void> check_complete() {
    for (int i = 0; i < schedule_.chunks; ++i) {
      for (int j = 0; j < schedule_.placement.stages(); ++j) {
        for (const Kind kind : schedule_.kinds(j)) {
          const Action a{kind, i, j};
          if (!index_[a]) return Error{ErrorCode::kBadSchedule, fmt::format("worker {}: {} is missing", worker_of(j), to_string(a))};
        }
      }
    }
    return {};
  }

  // What the worker itself must have run before: what the micro-batch runs before on the same stage, the micro-batch before, and the
  // stage before on the road. What other workers must have run before is the replay's business.
  Result<void> check_order(std::size_t worker, std::size_t action) {
    const Action& a = schedule_.per_worker[worker][action];
    const auto first = [&](const Action& other, std::string_view why) -> Result<void> {
      if (*index_[other] < action) return {};
      return action_error(schedule_, worker, action, fmt::format("comes before {}, action {}; {}", to_string(other), *index_[other], why));
    };
    const auto kinds = schedule_.kinds(a.stage);
    if (const auto own = std::find(kinds.begin(), kinds.end(), a.kind); own != kinds.begin()) {
      EPIPE_TRY(first({*(own - 1), a.micro_batch, a.stage}, kWhyBefore[static_cast<std::size_t>(a.kind)]));
    }
    if (a.micro_batch > 0) EPIPE_TRY(first({a.kind, a.micro_batch - 1, a.stage}, "micro-batches run in ascending order"));
    if (const auto before = previous_here(a)) EPIPE_TRY(first(*before, "its input depends on it"));
    return {};
  }

  // Its like on the nearest stage of the same worker that the micro-batch passes before this one.
  std::optional<Action> previous_here(const Action& a) const {
    const auto direction = info(a.kind).direction;
    if (!direction) return std::nullopt;
    for (int j = previous_stage(*direction, a.stage); j >= 0 && j < schedule_.placement.stages(); j = previous_stage(*direction, j)) {
      if (worker_of(j) == worker_of(a.stage)) return Action{schedule_.kind_of(*direction, j), a.micro_batch, j};
    }
    return std::nullopt;
  }

  Result<void> check_live() const {
    std::vector<int> live(schedule_.live_limit.size(), 0);
    for (std::size_t w = 0; w < schedule_.per_worker.size(); ++w) {
      for (std::size_t k = 0; k < schedule_.per_worker[w].size(); ++k) {
        const Action& a = schedule_.per_worker[w][k];
        const auto j = static_cast<std::size_t>(a.stage);
        live[j] += info(a.kind).live;
        if (live[j] <= schedule_.live_limit[j]) continue;
        return action_error(schedule_, w, k,
                            fmt::format("stage {} would hold {} live micro-batches; its limit is {}", j, live[j], schedule_.live_limit[j]));
      }
    }
    return {};
  }

  const Schedule& schedule_;
  Index index_;
};

Result<void> check_shape(const Schedule& schedule, int queue_capacity) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadSchedule, std::move(message)}; };
  EPIPE_TRY(check(schedule.placement));
  if (schedule.chunks < 1 || schedule.chunks > kMaxChunks) {
    return bad(fmt::format("the number of micro-batches (chunks) is from 1 to {}, got {}", kMaxChunks, schedule.chunks));
  }
  if (schedule.per_worker.size() != static_cast<std::size_t>(schedule.placement.workers())) {
    return bad(
        fmt::format("expected a list of actions for each of {} workers, got {}", schedule.placement.workers(), schedule.per_worker.size()));
  }
  if (schedule.live_limit.size() != schedule.placement.worker_of.size()) {
    return bad(fmt::format("expected a live limit for each of {} stages, got {}", schedule.placement.stages(), schedule.live_limit.size()));
  }
  if (schedule.split.size() != schedule.placement.worker_of.size()) {
    return bad(fmt::format("expected whether the backward is split for each of {} stages, got {}", schedule.placement.stages(),
                           schedule.split.size()));
  }
  if (queue_capacity < 1) return bad(fmt::format("a queue holds at least 1 frame, got {}", queue_capacity));
  return {};
}

}  // namespace

Result<void> validate(const Schedule& schedule, int queue_capacity) {
  EPIPE_TRY(check_shape(schedule, queue_capacity));
  EPIPE_TRY(Validator(schedule).run());
  return replay(schedule, queue_capacity);
}

}  // namespace epipe::schedule
