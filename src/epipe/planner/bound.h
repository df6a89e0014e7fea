#pragma once

#include "epipe/planner/stage_costs.h"

namespace epipe::planner {

// No schedule runs a step of these costs faster. Each worker, link, encoder and decoder is busy for all m micro-batches; before it starts
// the first must have come to it, and after it ends the last must go on to the end:
//
//   |-- road to it --|== m x work ==|-- road from it --|
//
// And no machine does more than its cores allow. A worker that splits its backwards may end with the gradients of weights, for which
// nobody waits: then there is no road from it, and half of a backward is on the road of others.
double least_seconds(const Inputs& inputs, const StageCosts& costs, int chunks, bool splits_backward = false);

}  // namespace epipe::planner
