#pragma once

#include <string>

#include "epipe/schedule/resources.h"

namespace epipe::cli {

// What a step costs and what it runs on, in seconds.
struct PricedStep {
  schedule::Costs costs;
  schedule::Resources resources;
};

// Reads a JSON object of
//   forward, backward                     [stages] seconds of an action
//   backward_input, backward_weights      [stages] seconds of the parts of a split backward; left out: half of backward each
//   bytes_forward, bytes_backward         [cuts] of a frame
//   bytes_per_second                      of a link in each direction
//   encode_forward, encode_backward, decode_forward, decode_backward, carry_forward, carry_backward
//                                         [cuts] seconds for a frame; 0 where left out
//   delay                                 [cuts] seconds one way, either direction; 0 where left out
//   latency                               seconds, of every cut, beside its delay; 0
//   machine_of, cores                     [workers] and [machines]; left out: a machine for each worker, with a core for each thread
// Throws UsageError.
PricedStep read_costs_file(const std::string& path, const schedule::Placement& placement);

}  // namespace epipe::cli
