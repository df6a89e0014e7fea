#pragma once

#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// "worker 1, action 3 (B 0 1): why"; actions count from 0.
Error action_error(const Schedule& schedule, std::size_t worker, std::size_t action, std::string_view why);

// Runs the lists against each other, without time: an action takes its input from its queue, waiting until it is there, and puts its
// output into the next queue, waiting until there is room. A queue between two workers holds `queue_capacity` frames; a cut within one
// worker is handed over directly. Whether it ends does not depend on who goes first. Every list must hold its actions in ascending
// micro-batch order.
Result<void> replay(const Schedule& schedule, int queue_capacity);

}  // namespace epipe::schedule
