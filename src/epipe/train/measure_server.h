#pragma once

#include <string>
#include <vector>

#include "epipe/planner/inputs.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"
#include "epipe/transport/network_config.h"

// What a server and the link to it take, measured in a few seconds through the protocol that training uses.
namespace epipe::train {

// Rates of payload, in bytes per second, and half a round trip. Throws what a connector throws.
planner::Link measure_link(const transport::ConnectConfig& dial);

// The layers that a server runs for a few samples to show its speed: much work, few bytes of weights and activations.
struct ProbePart {
  std::size_t begin = 0;
  std::size_t end = 0;
};
ProbePart choose_probe(const std::vector<planner::Layer>& layers, double most_bytes);

// Seconds of these layers on the server, by samples. Trains a few steps in a session of its own, of which nothing stays. Throws what a
// connector throws.
struct ProbeTimes {
  planner::Seconds forward;
  planner::Seconds backward;
};
ProbeTimes probe_server(const Registry& registry, const TrainConfig& config, const ProbePart& part, const transport::ConnectConfig& dial);

}  // namespace epipe::train
