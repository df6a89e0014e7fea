#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "epipe/cli/security_flags.h"
#include "epipe/train/config.h"

namespace epipe::cli {

// The flags of epipe train and similar commands.
struct TrainFlags {
  train::TrainConfig config;
  std::string seed = "0";  // a number, or "random"
  std::string weights;
  SecurityFlags security;
};

// The model, the data and the stages.
void add_stage_flags(CLI::App& command, TrainFlags& flags);
// Adds one more flag, by the name of its setting.
void add_named_flag(CLI::App& command, TrainFlags& flags, std::string_view name);
// All flags that a run's config.toml may set.
void add_train_flags(CLI::App& command, TrainFlags& flags);

inline constexpr std::string_view kRandomSeed = "random";
// The number, or 64 unpredictable bits for "random". Throws UsageError.
std::uint64_t seed_of(const std::string& text);

// The configuration for these flags. Throws UsageError if they are inconsistent.
train::TrainConfig checked(const TrainFlags& flags);

}  // namespace epipe::cli
