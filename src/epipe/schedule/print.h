#pragma once

#include <string>

#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// Both show one slot for every action, in the order that results when forward and backward take one slot and transfers none.

// One row per worker, one column per slot; F2.1 is the forward of micro-batch 2 on stage 1, a dot an idle slot:
//
//   slot      0    1    2    3
//   worker 0  F0.0 .    .    B0.0
//   worker 1  .    F0.1 B0.1 .
Result<std::string> to_grid(const Schedule& schedule);

// The header worker,slot,kind,micro_batch,stage, then one line per action, worker by worker; kind is F or B.
Result<std::string> to_csv(const Schedule& schedule);

}  // namespace epipe::schedule
