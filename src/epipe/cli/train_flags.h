#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "epipe/cli/security_flags.h"
#include "epipe/train/config.h"

namespace epipe::cli {

// The flags of epipe train and of its relatives.
struct TrainFlags {
  train::TrainConfig config;
  std::string seed = "0";  // a number, or "random"
  std::string weights;
  SecurityFlags security;
};

// The model, the data and the stages.
void add_stage_flags(CLI::App& command, TrainFlags& flags);
// One more, by the name of its setting.
void add_named_flag(CLI::App& command, TrainFlags& flags, std::string_view name);
// All that a run's config.toml may say.
void add_train_flags(CLI::App& command, TrainFlags& flags);

inline constexpr std::string_view kRandomSeed = "random";
// The number, or 64 bits that nobody can guess. Throws UsageError.
std::uint64_t seed_of(const std::string& text);

// What the flags mean. Throws UsageError where they do not fit together.
train::TrainConfig checked(const TrainFlags& flags);

}  // namespace epipe::cli
