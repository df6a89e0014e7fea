#pragma once

#include <vector>

#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// What one action and one transfer take, in seconds or any other unit, the same for all micro-batches.
struct Costs {
  std::vector<double> forward;            // [n]
  std::vector<double> backward;           // [n]
  std::vector<double> transfer_forward;   // [n-1], by cut; not charged where a cut stays within one worker
  std::vector<double> transfer_backward;  // [n-1]

  double of(const Action& action) const;
  double transfer(Kind direction, int cut) const;
};

Costs equal_costs(int stages, double forward, double backward, double transfer = 0);

// One finite value of at least 0 for each stage and cut.
Result<void> check(const Costs& costs, int stages);

}  // namespace epipe::schedule
