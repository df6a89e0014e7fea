#pragma once

#include <vector>

#include "epipe/schedule/generate.h"
#include "epipe/schedule/resources.h"

namespace epipe::schedule {

// [n] the limits of a bounded schedule: n - j on stage j. With `in_flight`, that many on every stage that a link separates from the last
// one, because a frame's time on links is no function of the number of stages; nothing is far from the others.
std::vector<int> live_limits(const Request& request);

struct InFlightQuestion {
  std::string_view schedule;
  const Placement& placement;
  int chunks;
  const Costs& costs;
  std::vector<int> most_live{};          // by worker, as Timeline::peak_live_of_worker counts; empty: memory is no limit
  const Resources* resources = nullptr;  // priced with them; null: with the costs alone
  std::vector<Costs> others{};           // under which the order, which is made for `costs` and fixed, must do as well
};

struct InFlight {
  int in_flight = 0;
  double makespan = 0;
  std::vector<int> live_of_worker{};  // at most
};

// The fewest micro-batches in flight whose simulated makespan is within 1 % of the best that the memory allows, and under each of the
// other costs within 3 % of the best one there; if there is no such number, the one that is worst by least. A function of its arguments
// alone. Fails where one micro-batch at a time is too much for the memory.
Result<InFlight> choose_in_flight(const InFlightQuestion& question);

}  // namespace epipe::schedule
