#pragma once

#include <vector>

#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// What one action and one transfer take, in seconds or any other unit, the same for all micro-batches.
struct Costs {
  std::vector<double> forward;             // [n]
  std::vector<double> backward;            // [n] of a whole backward
  std::vector<double> transfer_forward;    // [n-1], by cut; not charged where a cut stays within one worker
  std::vector<double> transfer_backward;   // [n-1]
  std::vector<double> backward_input{};    // [n] of the two parts of a split one; empty: each takes half of `backward`
  std::vector<double> backward_weights{};  // [n]
  std::vector<double> delay{};             // [n-1] one way, either direction: delays a frame, occupies nothing; empty: none

  double of(Kind kind, int stage) const;
  double of(const Action& action) const { return of(action.kind, action.stage); }
  double transfer(Direction direction, int cut) const;
  double delay_of(int cut) const { return delay.empty() ? 0 : delay[static_cast<std::size_t>(cut)]; }
  bool operator==(const Costs&) const = default;
};

Costs equal_costs(int stages, double forward, double backward, double transfer = 0);
// Every action takes 1, transfers nothing. Where backwards are split, a whole one takes 2, as Bi and Bw together do.
Costs slot_costs(int stages, bool splits_backward);

// To three digits, as a run's settings carry them.
Costs rounded(Costs costs);

// One finite value of at least 0 for each stage and cut.
Result<void> check(const Costs& costs, int stages);

}  // namespace epipe::schedule
