#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/cli/train_flags.h"

namespace epipe::cli {

// Whether the folder has the config.toml of a run.
bool has_config(const std::string& run_dir);

// The flags of the run in this folder, by its config.toml, with those on top that `given` has: on the command line, or from a file of
// --config. Throws UsageError for a file that cannot be read as such.
TrainFlags flags_of_run(const std::string& run_dir, const CLI::App& given);

// The command that continues the run, as one types it into a shell. What it leaves out is in the run's config.toml.
std::string resume_command(const TrainFlags& flags);

// A word as a shell reads it back.
std::string shell_word(const std::string& text);

}  // namespace epipe::cli
