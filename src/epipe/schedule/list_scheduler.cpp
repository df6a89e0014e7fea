#include "epipe/schedule/list_scheduler.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>

#include "epipe/schedule/arrivals.h"

namespace epipe::schedule {
namespace {

struct Candidate {
  Kind kind;
  int stage;
};

// The rule, as what each worker would rather do, best first. A forward before a backward, as long as the limits let it; then what is
// furthest from the end of its road, because other workers wait for it: forwards from the first stage on, backwards from the last.
// Neighbouring stages of one worker count as one, and what has entered it leaves it first. Nobody waits for the gradients of weights.
// Example, worker 0 of 0,0,1,0: F1 F0 F3 B3 B0 B1.
std::vector<std::vector<Candidate>> preferences(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  std::vector<std::vector<Candidate>> by_worker(static_cast<std::size_t>(placement.workers()));
  const auto add = [&](Kind kind, int stage) {
    by_worker[static_cast<std::size_t>(placement.worker_of[static_cast<std::size_t>(stage)])].push_back({kind, stage});
  };
  const int n = placement.stages();
  for (int first = 0, last = 0; first < n; first = ++last) {
    while (last + 1 < n && !placement.crosses(last)) ++last;
    for (int j = last; j >= first; --j) add(schedule.kind_of(Direction::kForward, j), j);
  }
  for (int first = n - 1, last = n - 1; last >= 0; last = --first) {
    while (first > 0 && !placement.crosses(first - 1)) --first;
    for (int j = first; j <= last; ++j) add(schedule.kind_of(Direction::kBackward, j), j);
  }
  for (int j = 0; j < n; ++j) {
    if (schedule.split[static_cast<std::size_t>(j)]) add(Kind::kBackwardWeights, j);
  }
  return by_worker;
}

class ListScheduler {
 public:
  ListScheduler(const Request& request, Limits limits)
      : costs_(request.costs),
        capacity_(request.queue_capacity),
        limits_(std::move(limits)),
        schedule_{request.placement, request.chunks, limits_.live, limits_.split, {}},
        preferences_(preferences(schedule_)),
        arrivals_(schedule_.placement, costs_),
        stages_(request.placement.worker_of.size()),
        free_at_(preferences_.size(), 0) {
    schedule_.per_worker.resize(preferences_.size());
  }

  Schedule run();

 private:
  using Started = std::array<int, kKinds.size()>;  // actions of a stage, by kind. An idle worker has finished all it started.

  int& started(Kind kind, int j) { return stages_[static_cast<std::size_t>(j)][static_cast<std::size_t>(kind)]; }
  int started(Kind kind, int j) const { return stages_[static_cast<std::size_t>(j)][static_cast<std::size_t>(kind)]; }
  int backwards(int j) const { return started(schedule_.kind_of(Direction::kBackward, j), j); }
  bool within_limits(const Action& action) const;
  bool has_room(const Action& action) const;
  bool input_there(const Action& action) const;
  std::optional<Action> pick(std::size_t worker) const;
  void start(const Action& action, std::size_t worker);

  const Costs& costs_;
  const int capacity_;
  const Limits limits_;
  Schedule schedule_;
  const std::vector<std::vector<Candidate>> preferences_;
  double now_ = 0;
  Arrivals arrivals_;
  std::vector<Started> stages_;
  std::vector<double> free_at_;  // by worker
  std::priority_queue<double, std::vector<double>, std::greater<>> events_;
};

bool ListScheduler::within_limits(const Action& action) const {
  const auto [kind, i, j] = action;
  const auto stage = static_cast<std::size_t>(j);
  switch (kind) {
    case Kind::kForward:
      return i - backwards(j) < limits_.in_flight[stage] && i - started(schedule_.kinds(j).back(), j) < limits_.live[stage];
    case Kind::kBackwardWeights: return i < started(Kind::kBackwardInput, j);
    case Kind::kBackward:
    case Kind::kBackwardInput: return stage + 1 < stages_.size() || started(Kind::kForward, j) >= limits_.forwards_first;
  }
  return false;
}

bool ListScheduler::has_room(const Action& action) const {
  const auto direction = info(action.kind).direction;
  if (!direction) return true;
  const int to = next_stage(*direction, action.stage);
  if (to < 0 || to == schedule_.placement.stages() || !schedule_.placement.crosses(cut_after(*direction, action.stage))) return true;
  return action.micro_batch - started(schedule_.kind_of(*direction, to), to) < capacity_;
}

bool ListScheduler::input_there(const Action& action) const {
  const auto arrival = arrivals_.of(action);
  return arrival && *arrival <= now_;
}

std::optional<Action> ListScheduler::pick(std::size_t worker) const {
  for (const auto& [kind, j] : preferences_[worker]) {
    const Action next{kind, started(kind, j), j};
    if (next.micro_batch < schedule_.chunks && within_limits(next) && has_room(next) && input_there(next)) return next;
  }
  return std::nullopt;
}

void ListScheduler::start(const Action& action, std::size_t worker) {
  ++started(action.kind, action.stage);
  schedule_.per_worker[worker].push_back(action);
  free_at_[worker] = now_ + costs_.of(action);
  events_.push(free_at_[worker]);
  events_.push(arrivals_.add(action, free_at_[worker]));
}

// Time moves from event to event, and at each every idle worker starts what the rule picks, worker 0 first. n = 3 on a chain, m = 4:
//
//   gpipe                                     1f1b
//   0  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3    0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
//   1  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .     1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
//   2  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .     2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
//
// A frame occupies its queue from the start of the action that makes it to the start of the action that takes it, and an action starts
// only if there is room. So this run itself shows that the order needs no larger queues. It never gets stuck: were every worker idle
// and nothing ready, then of the waiting gradients the one nearest stage 0 finds room, so no gradient waits; then the micro-batch
// furthest along finds room and is below the limits: in 1f1b every one before it has come back, in gpipe the limit is m.
Schedule ListScheduler::run() {
  events_.push(0);
  while (!events_.empty()) {
    now_ = events_.top();
    while (!events_.empty() && events_.top() <= now_) events_.pop();
    for (bool again = true; again;) {
      again = false;
      for (std::size_t worker = 0; worker < free_at_.size(); ++worker) {
        if (free_at_[worker] > now_) continue;
        const auto action = pick(worker);
        if (!action) continue;
        start(*action, worker);
        again = true;  // what it took may have made room for others
      }
    }
  }
  return std::move(schedule_);
}

}  // namespace

Schedule list_schedule(const Request& request, Limits limits) { return ListScheduler(request, std::move(limits)).run(); }

}  // namespace epipe::schedule
