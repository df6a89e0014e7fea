#pragma once

#include <CLI/CLI.hpp>

#include "epipe/cli/train_flags.h"
#include "epipe/train/registry.h"
#include "epipe/transport/network_config.h"

namespace epipe::cli {

// Whether epipe train plans automatically: with servers, and without flags for cuts, chunks, schedule or codecs.
bool plans_itself(const train::TrainConfig& config, const CLI::App& command);

// The configuration with a plan, which is printed in one line. Measures this machine, the link and the servers; if they cannot be reached
// it retries, like training. Throws std::invalid_argument if no plan fits.
train::TrainConfig planned(const train::Registry& registry, const train::TrainConfig& config, const transport::ConnectConfig& dial,
                           bool place_is_given);

}  // namespace epipe::cli
