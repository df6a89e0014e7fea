#include "epipe/schedule/generate.h"

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

// The rule, as what each worker would rather do, best first. A forward before a backward, as long as the live limit lets it; then what
// is furthest from the end of its road, because other workers wait for it: forwards from the first stage on, backwards from the last.
// Neighbouring stages of one worker count as one, and what has entered it leaves it first. Example, worker 0 of 0,0,1,0: F1 F0 F3 B3 B0 B1.
std::vector<std::vector<Candidate>> preferences(const Placement& placement) {
  std::vector<std::vector<Candidate>> by_worker(static_cast<std::size_t>(placement.workers()));
  const auto add = [&](Kind kind, int stage) {
    by_worker[static_cast<std::size_t>(placement.worker_of[static_cast<std::size_t>(stage)])].push_back({kind, stage});
  };
  const int n = placement.stages();
  for (int first = 0, last = 0; first < n; first = ++last) {
    while (last + 1 < n && !placement.crosses(last)) ++last;
    for (int j = last; j >= first; --j) add(Kind::kForward, j);
  }
  for (int first = n - 1, last = n - 1; last >= 0; last = --first) {
    while (first > 0 && !placement.crosses(first - 1)) --first;
    for (int j = first; j <= last; ++j) add(Kind::kBackward, j);
  }
  return by_worker;
}

// Starts actions as time passes; the order in which a worker starts them is its program.
class ListScheduler {
 public:
  ListScheduler(Policy policy, const Placement& placement, int chunks, const Costs& costs)
      : costs_(costs),
        n_(placement.stages()),
        capacity_(queue_capacity(policy)),
        forwards_first_(policy == Policy::kGpipe ? chunks : 1),
        preferences_(preferences(placement)),
        arrivals_(placement, costs),
        stages_(placement.worker_of.size()),
        free_at_(preferences_.size(), 0) {
    schedule_ = {placement, chunks, {}, std::vector<std::vector<Action>>(preferences_.size())};
    for (int j = 0; j < n_; ++j) schedule_.live_limit.push_back(policy == Policy::kGpipe ? chunks : std::min(chunks, n_ - j));
  }

  Schedule run();

 private:
  // Actions started. An idle worker has finished all it started.
  struct Stage {
    int forwards = 0;
    int backwards = 0;
  };

  Stage& at(int j) { return stages_[static_cast<std::size_t>(j)]; }
  const Stage& at(int j) const { return stages_[static_cast<std::size_t>(j)]; }
  bool input_there(const Action& action) const;
  bool forward_ready(int j) const;
  bool backward_ready(int j) const;
  std::optional<Action> pick(std::size_t worker) const;
  void start(const Action& action, std::size_t worker);

  const Costs& costs_;
  const int n_;
  const int capacity_;
  const int forwards_first_;  // on the last stage, before its first backward
  const std::vector<std::vector<Candidate>> preferences_;
  double now_ = 0;
  Schedule schedule_;
  Arrivals arrivals_;
  std::vector<Stage> stages_;
  std::vector<double> free_at_;  // by worker
  std::priority_queue<double, std::vector<double>, std::greater<>> events_;
};

bool ListScheduler::input_there(const Action& action) const {
  const auto arrival = arrivals_.of(action);
  return arrival && *arrival <= now_;
}

bool ListScheduler::forward_ready(int j) const {
  const int i = at(j).forwards;
  if (i == schedule_.chunks || i - at(j).backwards >= schedule_.live_limit[static_cast<std::size_t>(j)]) return false;
  const bool room = j == n_ - 1 || !schedule_.placement.crosses(j) || i - at(j + 1).forwards < capacity_;
  return room && input_there({Kind::kForward, i, j});
}

bool ListScheduler::backward_ready(int j) const {
  const int i = at(j).backwards;
  if (i == schedule_.chunks || (j == n_ - 1 && at(j).forwards < forwards_first_)) return false;
  const bool room = j == 0 || !schedule_.placement.crosses(j - 1) || i - at(j - 1).backwards < capacity_;
  return room && input_there({Kind::kBackward, i, j});
}

std::optional<Action> ListScheduler::pick(std::size_t worker) const {
  for (const auto& [kind, j] : preferences_[worker]) {
    if (kind == Kind::kForward && forward_ready(j)) return Action{kind, at(j).forwards, j};
    if (kind == Kind::kBackward && backward_ready(j)) return Action{kind, at(j).backwards, j};
  }
  return std::nullopt;
}

void ListScheduler::start(const Action& action, std::size_t worker) {
  ++(action.kind == Kind::kForward ? at(action.stage).forwards : at(action.stage).backwards);
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
// furthest along finds room and is below the live limit: in 1f1b every one before it has come back, in gpipe the limit is m.
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

std::string_view name(Policy policy) { return policy == Policy::kGpipe ? "gpipe" : "1f1b"; }

Result<Policy> parse_policy(std::string_view name) {
  if (name == "gpipe") return Policy::kGpipe;
  if (name == "1f1b") return Policy::k1f1b;
  return Error{ErrorCode::kBadSchedule, fmt::format("unknown schedule \"{}\"; known are gpipe and 1f1b", name)};
}

int queue_capacity(Policy policy) { return policy == Policy::kGpipe ? 2 : 1; }

Result<Schedule> generate(Policy policy, const Placement& placement, int chunks, const Costs& costs) {
  EPIPE_TRY(check(placement));
  EPIPE_TRY(check(costs, placement.stages()));
  if (chunks < 1 || chunks > kMaxChunks) {
    return Error{ErrorCode::kBadSchedule, fmt::format("the number of micro-batches (chunks) is from 1 to {}, got {}", kMaxChunks, chunks)};
  }
  return ListScheduler(policy, placement, chunks, costs).run();
}

Result<Schedule> generate(Policy policy, const Placement& placement, int chunks) {
  EPIPE_TRY(check(placement));
  return generate(policy, placement, chunks, equal_costs(placement.stages(), 1, 1));
}

}  // namespace epipe::schedule
