// zb-h1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): the order of 1f1b, but the next stage gets its gradient after Bi, and Bw
// fills the time in which a worker would wait. n = 3, m = 4, F = Bi = Bw:
//
//   0  F0  F1  F2  .   .   B0  ==  F3  B1  ==  B2  ==  B3  ==
//   1  .   F0  F1  .   Bi0 F2  Bi1 Bw0 F3  Bi2 Bw1 Bi3 Bw2 Bw3
//   2  .   .   F0  Bi0 F1  Bi1 F2  Bi2 Bw0 F3  Bi3 Bw1 Bw2 Bw3
//
// Between F and Bi a stage holds as many micro-batches as in 1f1b, n - j, and until Bw at most n, so no stage holds more than the first
// one of 1f1b does. With m of at least n the bubble is (n - 1)(F + Bi - Bw); that of 1f1b is (n - 1)(F + Bi + Bw).
// What it gains is 2 (n - 1) Bw of a step of (m + n - 1)(F + Bi + Bw), so it pays where m is not much larger than n; the later stages
// hold more than in 1f1b. Bi and Bw together take about as long as B: training MobileNetV2 and ResNet-18 on two stages takes 3 % more
// CPU time than with 1f1b.
// The backward of stage 0 is whole: nobody waits for the gradient of its input.
#include <algorithm>

#include "epipe/schedule/generators.h"
#include "epipe/schedule/in_flight.h"
#include "epipe/schedule/list_scheduler.h"

namespace epipe::schedule {

Schedule zb_h1(const Request& request) {
  const int n = request.placement.stages();
  Limits limits;
  limits.in_flight = live_limits(request);
  for (int j = 0; j < n; ++j) {
    limits.live.push_back(std::min(request.chunks, request.in_flight > 0 ? request.in_flight : n));
    limits.split.push_back(j > 0);
  }
  return list_schedule(request, std::move(limits));
}

}  // namespace epipe::schedule
