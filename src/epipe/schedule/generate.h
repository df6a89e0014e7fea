#pragma once

#include <string_view>

#include "epipe/schedule/costs.h"
#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

enum class Policy : std::uint8_t {
  kGpipe,  // every forward, then every backward; a stage holds all m micro-batches
  k1f1b,   // a backward as soon as the pipeline is full; stage j holds at most n - j micro-batches
};

std::string_view name(Policy policy);  // "gpipe", "1f1b"
Result<Policy> parse_policy(std::string_view name);

// Frames per cut and direction that the queues between workers must hold for the policy's orders to run without a deadlock.
// 1f1b needs 1 on every placement. gpipe could be ordered for 1 as well, but 2 let the first worker of a ring run ahead far enough to
// hide a transfer: 0,1,0 with m = 8, F = 1, B = 2 and transfers of 1 takes 48 instead of 58. On a chain its order needs only 1.
int queue_capacity(Policy policy);

// For any placement. `costs` decide what overlaps with what, not the result of the training; every worker must be given the same.
Result<Schedule> generate(Policy policy, const Placement& placement, int chunks, const Costs& costs);
Result<Schedule> generate(Policy policy, const Placement& placement, int chunks);  // every action costs 1, transfers nothing

}  // namespace epipe::schedule
