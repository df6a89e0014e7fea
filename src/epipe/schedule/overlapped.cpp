#include "epipe/schedule/overlapped.h"

namespace epipe::schedule {
namespace {

class Lists {
 public:
  Lists(const Placement& placement, int first_trained, int worker)
      : placement_(placement), first_trained_(first_trained), worker_(worker) {}

  // Micro-batches from `begin` to `end` through the stages before the last one.
  void backwards(int begin, int end) {
    for (int j = last() - 1; j >= first_trained_; --j) {
      for (int i = begin; has(j) && i < end; ++i) actions_.push_back({{Kind::kBackward, i, j}, true});
    }
  }
  void forwards(int chunks, int begin_stage, int end_stage) {
    for (int j = begin_stage; j < end_stage; ++j) {
      for (int i = 0; has(j) && i < chunks; ++i) {
        actions_.push_back({{Kind::kForward, i, j}, false});
        if (j == last()) actions_.push_back({{Kind::kBackward, i, j}, false});
      }
    }
  }
  // Stages that are worker 0's from the first one on, but for the last stage.
  int entrance() const {
    int end = 0;
    while (end < last() && placement_.worker_of[static_cast<std::size_t>(end)] == placement_.worker_of[0]) ++end;
    return end;
  }
  int stages() const { return placement_.stages(); }
  std::vector<OverlappedAction> take() { return std::move(actions_); }

 private:
  int last() const { return placement_.stages() - 1; }
  bool has(int stage) const { return placement_.worker_of[static_cast<std::size_t>(stage)] == worker_; }

  const Placement& placement_;
  int first_trained_;
  int worker_;
  std::vector<OverlappedAction> actions_{};
};

}  // namespace

int early_count(int chunks) { return chunks * 3 / 4; }

std::vector<Action> early_backwards(const Placement& placement, int first_trained, int chunks, int worker) {
  std::vector<Action> actions;
  if (worker == 0) return actions;
  Lists lists(placement, first_trained, worker);
  lists.backwards(0, early_count(chunks));
  for (const OverlappedAction& one : lists.take()) actions.push_back(one.action);
  return actions;
}

// No worker waits for another one forever, because all of them follow one order of everything: forwards of the stages at the entrance,
// early backwards, the other forwards with the last stage, the other backwards.
std::vector<OverlappedAction> overlapped_actions(const OverlappedRequest& request, int worker) {
  Lists lists(request.placement, request.first_trained, worker);
  const int early = request.early ? early_count(request.older) : 0;
  lists.forwards(request.newer, 0, lists.entrance());
  if (worker == 0) lists.backwards(0, early);
  lists.forwards(request.newer, lists.entrance(), lists.stages());
  lists.backwards(early, request.older);
  return lists.take();
}

}  // namespace epipe::schedule
