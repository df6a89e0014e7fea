#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <set>

#include "epipe/cli/train_flags.h"
#include "epipe/train/link_follower.h"
#include "epipe/train/registry.h"
#include "epipe/transport/network_config.h"

namespace epipe::cli {

// Whether epipe train plans automatically: with servers, and without flags for cuts, chunks, schedule or codecs.
bool plans_itself(const train::TrainConfig& config, const CLI::App& command);

// The configuration with a plan, which is printed in one line. Measures this machine, the link and the servers; if they cannot be reached
// it retries, like training. Of what is given it keeps the placement and the bound of harm. Throws std::invalid_argument if no plan fits.
// With --follow-link the plan codes every tensor that crosses a cut, so that there are bits to choose when the link changes.
struct PlannedRun {
  train::TrainConfig config;
  std::optional<train::FollowOptions> follow{};  // with --follow-link
};
PlannedRun planned(const train::Registry& registry, const train::TrainConfig& config, const transport::ConnectConfig& dial,
                   std::set<std::string> given);

// What --follow-link needs for a run that already has a plan, measured in the same way.
train::FollowOptions measured_for_following(const train::Registry& registry, const train::TrainConfig& config,
                                            const transport::ConnectConfig& dial);

}  // namespace epipe::cli
