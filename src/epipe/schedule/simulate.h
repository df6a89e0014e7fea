#pragma once

#include <vector>

#include "epipe/schedule/costs.h"
#include "epipe/schedule/interval.h"
#include "epipe/schedule/resources.h"
#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// When everything happens, in the unit of the costs.
struct Timeline {
  std::vector<std::vector<Interval>> per_worker;  // one for each action of Schedule::per_worker
  double makespan = 0;
  std::vector<double> bubble_of_worker;  // the idle part of the makespan, 0 to 1
  double bubble = 0;                     // the mean over the workers
  // Most micro-batches held at once between the start of their forward and the end of their backward, B or Bw.
  std::vector<int> peak_live_of_stage;
  std::vector<int> peak_live_of_worker;  // counted once for each of its stages
};

// Every action starts as soon as its worker is free and its input is there. Transfers overlap with computing. A link joins two workers,
// one for each direction: what any cut sends from one to the other follows each other on it, first come, first served, and is there
// after the delay of its cut. No queue is ever full.
Result<Timeline> simulate(const Schedule& schedule, const Costs& costs);

// The same with what else a step needs.
Result<Timeline> simulate(const Schedule& schedule, const Costs& costs, const Resources& resources);

// One worker that runs everything; it splits no backward.
double serial_time(int chunks, const Costs& costs);

// No schedule on this placement that splits no backward finishes earlier, so serial_time / least_makespan is the speed-up it cannot
// exceed; with `splits_backward`, none that may split them. `costs` must fit.
double least_makespan(const Placement& placement, int chunks, const Costs& costs, bool splits_backward = false);

}  // namespace epipe::schedule
