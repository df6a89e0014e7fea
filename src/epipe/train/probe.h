#pragma once

#include <functional>

#include "epipe/schedule/resources.h"
#include "epipe/session/peer_connector.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// What a micro-batch takes on its road, in seconds.
struct Measured {
  std::vector<double> forward;     // [n]
  std::vector<double> backward;    // [n]
  schedule::PerCut encode;         // [n-1]
  schedule::PerCut decode;         // [n-1]
  schedule::PerCut transfer;       // [n-1] beyond the delay: bytes by the rate of the link
  schedule::PerCut bytes;          // [n-1] of its frames
  std::vector<double> delay;       // [n-1] one way
  std::vector<double> round_trip;  // by worker; 0 for those here

  // For a schedule: codecs only delay what crosses a cut.
  schedule::Costs costs() const;
};

// Connects the run of this configuration, does two steps that are never committed, the first of which only warms up, and ends that
// session: nothing of it is left there. Throws what connecting and training throw.
Measured measure(const Registry& registry, const TrainConfig& config, session::PeerConnector& connector);

// Whether --in-flight auto has yet to be measured.
bool wants_measuring(const TrainConfig& config);
// With the costs and the micro-batches in flight that follow from measure(), for the plan and config.toml. Tries again for --reconnect
// seconds where a server does not answer.
TrainConfig with_measured_costs(const Registry& registry, TrainConfig config, session::PeerConnector& connector,
                                const std::function<void(const std::string&)>& note);

}  // namespace epipe::train
