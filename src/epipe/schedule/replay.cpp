#include "epipe/schedule/replay.h"

#include <algorithm>
#include <array>

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
  struct Count {
    int taken = 0;  // inputs taken and outputs put, so far
    int put = 0;
  };
  using Stage = std::array<Count, kKinds.size()>;  // by kind

  const Count& count(Kind kind, int j) const { return stages_[static_cast<std::size_t>(j)][static_cast<std::size_t>(kind)]; }

  bool input_there(const Action& a) const {
    const auto from = schedule_.source(a);
    return !from || count(from->kind, from->stage).put > a.micro_batch;
  }

  bool room_for_output(const Action& a) const {
    const auto direction = info(a.kind).direction;
    if (!direction) return true;
    const int to = next_stage(*direction, a.stage);
    if (to < 0 || to == schedule_.placement.stages() || !schedule_.placement.crosses(cut_after(*direction, a.stage))) return true;
    return a.micro_batch - count(schedule_.kind_of(*direction, to), to).taken < capacity_;
  }

  // Takes an input or puts an output.
  bool step(std::size_t w) {
    Worker& worker = workers_[w];
    if (worker.next == schedule_.per_worker[w].size()) return false;
    const Action& a = schedule_.per_worker[w][worker.next];
    Count& done = stages_[static_cast<std::size_t>(a.stage)][static_cast<std::size_t>(a.kind)];
    if (!worker.has_input) {
      if (!input_there(a)) return false;
      ++done.taken;
      worker.has_input = true;
      return true;
    }
    if (!room_for_output(a)) return false;
    ++done.put;
    worker = {worker.next + 1, false};
    return true;
  }

  std::string reason(std::size_t w) const {
    const Action& a = schedule_.per_worker[w][workers_[w].next];
    if (!workers_[w].has_input) return fmt::format("waits for {}", to_string(*schedule_.source(a)));
    return fmt::format("waits for room in the queue of cut {}, which holds {}", cut_after(*info(a.kind).direction, a.stage), capacity_);
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
