#pragma once

#include <functional>

#include "epipe/schedule/resources.h"
#include "epipe/session/peer_connector.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// The times of a micro-batch along its way, in seconds.
struct Measured {
  std::vector<double> forward;     // [n]
  std::vector<double> backward;    // [n]
  schedule::PerCut encode;         // [n-1]
  schedule::PerCut decode;         // [n-1]
  schedule::PerCut transfer;       // [n-1] besides the delay: bytes divided by the rate of the link
  schedule::PerCut bytes;          // [n-1] of its frames
  std::vector<double> delay;       // [n-1] one way
  std::vector<double> round_trip;  // by worker; 0 for local ones

  // The costs for a schedule: codecs only delay what crosses a cut.
  schedule::Costs costs() const;
};

// Connects a run with this configuration, does two steps that are never committed, the first as warm-up, and ends that session, which
// leaves nothing behind. Throws like connecting and training.
Measured measure(const Registry& registry, const TrainConfig& config, session::PeerConnector& connector);

// Whether --in-flight auto still needs a measurement.
bool wants_measuring(const TrainConfig& config);
// The configuration with costs and micro-batches in flight from measure(), for the plan and config.toml. If a server does not answer,
// retries for --reconnect seconds.
TrainConfig with_measured_costs(const Registry& registry, TrainConfig config, session::PeerConnector& connector,
                                const std::function<void(const std::string&)>& note);

}  // namespace epipe::train
