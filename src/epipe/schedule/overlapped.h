#pragma once

#include <vector>

#include "epipe/schedule/schedule.h"

// Gradients that are applied one step late (--delay 1): the forwards of a step run beside the backwards of the step before. What a worker
// does between two commits is a list again, and a function of what follows alone.
//
//   ring 0,1,0, m = 4, E = 3; F1, B1 of step 1, and F2B2 the last stage, which goes back at once; | a commit of the step before
//
//   0  | F2 F2 F2 F2 . B1 B1 B1 F2B2 F2B2 F2B2 F2B2 . B1 .     | F3 F3 F3 F3 ...
//   1    B1 B1 B1 | F2 F2 F2 F2 B1                    B2 B2 B2 | F3 F3 F3 F3 B2 ...
//
// Worker 1 runs the first E backwards of step 2 while its gradients of step 1 and their commit are under way, and worker 0 answers its
// forwards before it comes to the backwards of step 2: of the time between two commits, either way round has about half.
namespace epipe::schedule {

struct OverlappedAction {
  Action action;
  bool older = false;  // of the step before

  bool operator==(const OverlappedAction&) const = default;
};

struct OverlappedRequest {
  const Placement& placement;
  int first_trained = 0;  // stages before it run no backward
  int newer = 0;          // micro-batches of the step that runs its forwards; 0: none, the pipeline drains
  int older = 0;          // micro-batches of the step before; 0: none, the pipeline fills
  bool early = false;     // workers but the first have run early_backwards() of the step before
};

// Of so many, those whose backwards run early: E = 3/4 m, where a backward takes two forwards and a round trip fits either half.
int early_count(int chunks);
// What a worker runs of the step that had its forwards, before the step before is committed.
std::vector<Action> early_backwards(const Placement& placement, int first_trained, int chunks, int worker);
// What it runs after that commit. Each stage runs each kind in ascending micro-batch order, step after step.
std::vector<OverlappedAction> overlapped_actions(const OverlappedRequest& request, int worker);

// Frames per cut and direction that the queues between workers must hold.
constexpr int overlapped_capacity(int chunks) { return 2 * chunks; }

}  // namespace epipe::schedule
