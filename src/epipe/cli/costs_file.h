#pragma once

#include <string>

#include "epipe/schedule/resources.h"

namespace epipe::cli {

// The costs of a step in seconds, and the resources it runs on.
struct PricedStep {
  schedule::Costs costs;
  schedule::Resources resources;
};

// Reads a JSON object of
//   forward, backward                     [stages] seconds of an action
//   backward_input, backward_weights      [stages] seconds of the parts of a split backward; default: half of backward each
//   bytes_forward, bytes_backward         [cuts] bytes of a frame
//   bytes_per_second                      of a link, in each direction
//   encode_forward, encode_backward, decode_forward, decode_backward, carry_forward, carry_backward
//                                         [cuts] seconds for a frame, carry at each end; default 0
//   delay                                 [cuts] seconds one way, either direction; default 0
//   latency                               seconds, at every cut, in addition to its delay; default 0
//   machine_of, cores                     [workers] and [machines]; default: a machine for each worker, with a core for each thread
// Throws UsageError.
PricedStep read_costs_file(const std::string& path, const schedule::Placement& placement);

}  // namespace epipe::cli
