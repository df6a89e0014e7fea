#pragma once

#include <string>

#include "epipe/schedule/costs.h"
#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// Both show when each action starts, with slot_costs(): actions take one slot, transfers none.

// One row per worker, one column per slot; F2.1 is the forward of micro-batch 2 on stage 1, a dot an idle slot, == the second slot of an
// action that takes two (a whole backward beside split ones):
//
//   slot      0    1    2    3
//   worker 0  F0.0 .    .    B0.0
//   worker 1  .    F0.1 B0.1 .
Result<std::string> to_grid(const Schedule& schedule);

// The header worker,slot,kind,micro_batch,stage, then one line per action, worker by worker; kind is F, B, Bi or Bw.
Result<std::string> to_csv(const Schedule& schedule);

// The costs behind both.
Costs slot_costs(const Schedule& schedule);

}  // namespace epipe::schedule
