#pragma once

#include "epipe/model/architecture.h"
#include "epipe/train/batches.h"
#include "epipe/train/config.h"
#include "epipe/train/plan.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// The plan of a run, as its configuration, its data and the architecture of its model decide it: the same in every process. Cuts that are
// not configured are chosen by FLOPs, or by what layers take here. Throws std::invalid_argument where the three do not fit together.
Plan make_plan(const Registry& registry, const TrainConfig& config, const model::Architecture& architecture, const Batches& batches);

}  // namespace epipe::train
