// 1f1b (Narayanan et al. 2019): a backward as soon as the pipeline is full. Stage j holds at most n - j micro-batches, or with distances
// in between as many as live_limits() says. Queues of 1 frame are enough on every placement; more hide delays.
//
//   0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
//   1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
//   2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
#include "epipe/schedule/generators.h"
#include "epipe/schedule/in_flight.h"
#include "epipe/schedule/list_scheduler.h"

namespace epipe::schedule {

Schedule one_f_one_b(const Request& request) {
  const auto limit = live_limits(request);
  return list_schedule(request, {limit, limit, std::vector<bool>(limit.size(), false)});
}

}  // namespace epipe::schedule
