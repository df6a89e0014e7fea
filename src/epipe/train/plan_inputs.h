#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "epipe/planner/choice.h"
#include "epipe/planner/parse.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"
#include "epipe/transport/network_config.h"

namespace epipe::train {

// What a plan is asked for.
struct PlanRequest {
  TrainConfig config;           // model, data, batch, threads, optimizer; and what is `given` of cuts, place, chunks, schedule, codecs
  std::set<std::string> given;  // settings that the plan keeps, by name; harm: codecs choose their bits by it, and it stays what it is
  std::vector<planner::WorkerSpec> workers;
  planner::LinkSpec link;
  std::vector<std::string> keep;        // layers that stay with the client, as --freeze names them
  double bits = 2;                      // of a value, where the codec is the plan's to choose
  std::vector<double> followed_bits{};  // that rates may take while training (link_follower.h); then the plan codes every cut that crosses
  int least_samples = 0;                // of a micro-batch; 0: 8 where the model has BatchNorm, otherwise 1
  transport::ConnectConfig dial;        // how servers are reached whose speed or link is not given
  std::function<void(const std::string&)> note = [](const std::string&) {};  // what is being measured
};

// The tables of a plan: given where the request says so, measured on this machine and through the servers' own protocol, or estimated.
// Every number is among the facts. Throws std::invalid_argument where the request makes no sense, what a connector throws otherwise.
planner::Inputs plan_inputs(const Registry& registry, const PlanRequest& request);

// The configuration with what was chosen: cuts by name, place, chunks, schedule, codecs.
TrainConfig with_choice(TrainConfig config, const planner::Inputs& inputs, const planner::Choice& choice);

}  // namespace epipe::train
