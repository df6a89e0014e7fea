#pragma once

#include <vector>

#include "epipe/schedule/costs.h"

namespace epipe::schedule {

// What one value costs at each cut, by direction.
struct PerCut {
  std::vector<double> forward;   // [n-1]
  std::vector<double> backward;  // [n-1]

  double at(Direction direction, int cut) const {
    return (direction == Direction::kForward ? forward : backward)[static_cast<std::size_t>(cut)];
  }
};

// What a step needs besides the actions, in the unit of the costs. Nothing is charged where a cut stays within one worker.
//
//   worker -> encoder -> link -> decoder -> worker      a thread for each encoder and decoder, by cut and direction
//                  carrier | carrier                    a thread at each end of a link: encryption, the network's own work
struct Resources {
  PerCut encode;
  PerCut decode;
  PerCut carry_out;             // of the sending end; runs beside the transfer
  PerCut carry_in;              // of the receiving end, likewise
  double latency = 0;           // from the end of a transfer until the decoder can start, beside the delay of its cut
  std::vector<int> machine_of;  // [workers]
  std::vector<double> cores;    // [machines], more than 0: what their threads share evenly when more of them are busy
};

// Nothing but the costs: codecs for free, a machine for each worker with a core for every thread.
Resources no_resources(const Placement& placement);

Result<void> check(const Resources& resources, const Placement& placement);

}  // namespace epipe::schedule
