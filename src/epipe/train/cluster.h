#pragma once

#include <atomic>
#include <memory>

#include "epipe/train/config.h"
#include "epipe/train/peers.h"
#include "epipe/transport/c10d/group.h"

namespace epipe::train {

// Workers 1, 2, ... in the processes of the same rank.
std::unique_ptr<Reach> reach_ranks(transport::Group& group);

// The life of a rank but 0: obeys rank 0 until the run has ended. Its configuration must be rank 0's. Throws what ends it.
void follow_rank_zero(const TrainConfig& config, transport::Group& group);

}  // namespace epipe::train
