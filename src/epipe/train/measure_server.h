#pragma once

#include <string>
#include <vector>

#include "epipe/planner/inputs.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"
#include "epipe/transport/network_config.h"

// The speed of a server and the link to it, measured in a few seconds through the protocol of training.
namespace epipe::train {

// Ends of a message at a server: its relay takes it and passes it on to the session's process, which takes it.
inline constexpr double kServerEnds = 3;

// Payload rates, in bytes per second, work for messages, and what half a round trip takes besides. Throws like a connector.
planner::Link measure_link(const transport::ConnectConfig& dial);

// The layers a server runs for a few samples to measure its speed: much work, few bytes of weights and activations.
struct ProbePart {
  std::size_t begin = 0;
  std::size_t end = 0;
};
ProbePart choose_probe(const std::vector<planner::Layer>& layers, double most_bytes);

// Seconds of an action with these layers on the server, at two sizes of a micro-batch, and what a step takes besides. Trains a few steps
// in a separate session, which leaves nothing behind. Throws like a connector.
struct ProbeTimes {
  std::vector<double> sizes;
  std::vector<double> forward;
  std::vector<double> backward;
  double around = 0;  // command, reply, commit and update: a step's time in which the client neither computes nor waits for a tensor
};
ProbeTimes probe_server(const Registry& registry, const TrainConfig& config, const ProbePart& part, const transport::ConnectConfig& dial);

}  // namespace epipe::train
