#pragma once

#include <string>
#include <vector>

#include "epipe/planner/inputs.h"
#include "epipe/schedule/costs.h"

namespace epipe::planner {

// Codecs of one cut, as indices of Inputs::codecs.
struct CutCodecs {
  std::size_t forward = 0;
  std::size_t backward = 0;

  std::size_t of(schedule::Direction direction) const { return direction == schedule::Direction::kForward ? forward : backward; }
  bool operator==(const CutCodecs&) const = default;
};

// What the flags of a run say.
struct Choice {
  std::vector<std::size_t> cuts;  // layer indices at which a stage begins
  std::vector<int> place;
  int chunks = 1;
  std::vector<CutCodecs> codecs;  // by cut
  std::string schedule;
  int in_flight = 0;        // most micro-batches that a stage may hold; 0: as the schedule limits them
  schedule::Costs costs{};  // that the actions are ordered for; empty: equal ones

  bool operator==(const Choice&) const = default;
};

struct Price {
  double seconds = 0;  // of a step, with the optimizer
  double samples_per_s = 0;
  double bytes_up = 0;  // of a step, away from worker 0
  double bytes_down = 0;
  std::vector<double> memory;  // by worker
};

struct Priced {
  Choice choice;
  Price price;
};

}  // namespace epipe::planner
