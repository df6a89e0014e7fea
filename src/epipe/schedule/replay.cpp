#include "epipe/schedule/replay.h"

#include <algorithm>

namespace epipe::schedule {
namespace {

class Replay {
 public:
  Replay(const Schedule& schedule, int queue_capacity)
      : schedule_(schedule),
        capacity_(queue_capacity),
        stages_(schedule.placement.worker_of.size()),
        workers_(schedule.per_worker.size()) {}

  Result<void> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        while (step(w)) moved = true;
      }
    }
    return stuck();
  }

 private:
  struct Worker {
    std::size_t next = 0;
    bool has_input = false;  // of the next action, whose output still needs room
  };
  struct Stage {
    int forward_taken = 0;  // inputs taken and outputs put, so far
    int forward_put = 0;
    int backward_taken = 0;
    int backward_put = 0;
  };

  const Stage& at(int j) const { return stages_[static_cast<std::size_t>(j)]; }

  // The action whose output this one takes; any but a forward of stage 0 has one.
  Action source(const Action& a) const {
    if (a.kind == Kind::kForward) return {a.kind, a.micro_batch, a.stage - 1};
    const bool last = a.stage + 1 == schedule_.placement.stages();
    return last ? Action{Kind::kForward, a.micro_batch, a.stage} : Action{Kind::kBackward, a.micro_batch, a.stage + 1};
  }

  bool input_there(const Action& a) const {
    if (a.kind == Kind::kForward && a.stage == 0) return true;
    const Action from = source(a);
    return (from.kind == Kind::kForward ? at(from.stage).forward_put : at(from.stage).backward_put) > a.micro_batch;
  }

  bool room_for_output(const Action& a) const {
    const int to = a.kind == Kind::kForward ? a.stage + 1 : a.stage - 1;
    if (to < 0 || to == schedule_.placement.stages() || !schedule_.placement.crosses(std::min(a.stage, to))) return true;
    const int taken = a.kind == Kind::kForward ? at(to).forward_taken : at(to).backward_taken;
    return a.micro_batch - taken < capacity_;
  }

  // Takes an input or puts an output.
  bool step(std::size_t w) {
    Worker& worker = workers_[w];
    if (worker.next == schedule_.per_worker[w].size()) return false;
    const Action& a = schedule_.per_worker[w][worker.next];
    Stage& stage = stages_[static_cast<std::size_t>(a.stage)];
    if (!worker.has_input) {
      if (!input_there(a)) return false;
      ++(a.kind == Kind::kForward ? stage.forward_taken : stage.backward_taken);
      worker.has_input = true;
      return true;
    }
    if (!room_for_output(a)) return false;
    ++(a.kind == Kind::kForward ? stage.forward_put : stage.backward_put);
    worker = {worker.next + 1, false};
    return true;
  }

  std::string reason(std::size_t w) const {
    const Action& a = schedule_.per_worker[w][workers_[w].next];
    const int cut = a.kind == Kind::kForward ? a.stage : a.stage - 1;
    if (workers_[w].has_input) return fmt::format("waits for room in the queue of cut {}, which holds {}", cut, capacity_);
    return fmt::format("waits for {}", to_string(source(a)));
  }

  // The first worker that did not reach the end, then the others.
  Result<void> stuck() const {
    std::string others;
    std::size_t first = workers_.size();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].next == schedule_.per_worker[w].size()) continue;
      if (first < workers_.size()) others += fmt::format("; {}", action_error(schedule_, w, workers_[w].next, reason(w)).message);
      first = std::min(first, w);
    }
    if (first == workers_.size()) return {};
    return action_error(schedule_, first, workers_[first].next, fmt::format("deadlock: {}{}", reason(first), others));
  }

  const Schedule& schedule_;
  const int capacity_;
  std::vector<Stage> stages_;
  std::vector<Worker> workers_;
};

}  // namespace

Error action_error(const Schedule& schedule, std::size_t worker, std::size_t action, std::string_view why) {
  return {ErrorCode::kBadSchedule,
          fmt::format("worker {}, action {} ({}): {}", worker, action, to_string(schedule.per_worker[worker][action]), why)};
}

Result<void> replay(const Schedule& schedule, int queue_capacity) { return Replay(schedule, queue_capacity).run(); }

}  // namespace epipe::schedule
