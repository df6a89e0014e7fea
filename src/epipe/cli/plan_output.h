#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "epipe/planner/search.h"
#include "epipe/train/config.h"

// The output of a plan.
namespace epipe::cli {

// "--cuts 1,19 --place 0,1,0 --schedule 1f1b --chunks 8 --codec auto:2"
std::string plan_flags(const planner::Inputs& inputs, const planner::Choice& choice);

// "118 samples/s, up binds"
std::string plan_summary(const planner::Proposal& proposal);

// For humans: the inputs, the choice, the bottleneck, the runners-up, the grid.
std::string plan_text(const planner::Inputs& inputs, const planner::Proposal& proposal);

// One object: flags, command, predicted, binds, runners_up, search, facts, inputs.
nlohmann::ordered_json plan_json(const planner::Inputs& inputs, const planner::Proposal& proposal);

}  // namespace epipe::cli
