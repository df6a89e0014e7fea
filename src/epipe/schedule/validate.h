#pragma once

#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// Whether every worker can run its list to the end, and the result is the training step: each micro-batch once forward and once
// backward (B, or Bi and Bw) on each stage, on the right worker, in order, within the live limits, and without a deadlock when the
// queue of a cut and direction between two workers holds `queue_capacity` frames. The error names worker and action.
Result<void> validate(const Schedule& schedule, int queue_capacity);

}  // namespace epipe::schedule
