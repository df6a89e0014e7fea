// gpipe (Huang et al. 2018): every forward, then every backward. A stage holds all m micro-batches. With a limit of K
// in flight every stage holds at most K, and a backward runs where no forward can: far stages need not wait for the last forward.
//
//   0  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
//   1  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
//   2  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .
//
// It could be ordered for queues of 1 frame, but 2 let the first worker of a ring run ahead far enough to hide a transfer: 0,1,0 with
// m = 8, F = 1, B = 2 and transfers of 1 takes 48 instead of 58. On a chain its order needs only 1.
#include "epipe/schedule/generators.h"
#include "epipe/schedule/list_scheduler.h"

namespace epipe::schedule {

Schedule gpipe(const Request& request) {
  const auto n = request.placement.worker_of.size();
  const bool limited = request.in_flight > 0;
  const std::vector<int> all(n, limited ? request.in_flight : request.chunks);
  return list_schedule(request, {all, all, std::vector<bool>(n, false), limited ? 1 : request.chunks});
}

}  // namespace epipe::schedule
