#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/cli/train_flags.h"

namespace epipe::cli {

// Whether the folder has the config.toml of a run.
bool has_config(const std::string& run_dir);

// The flags of the run in this folder, from its config.toml, overridden by the flags in `given`: from the command line or a --config file.
// Throws UsageError if config.toml cannot be parsed.
TrainFlags flags_of_run(const std::string& run_dir, const CLI::App& given);

// The shell command that continues the run. Flags it leaves out are in the run's config.toml.
std::string resume_command(const TrainFlags& flags);

// A word, quoted for a shell.
std::string shell_word(const std::string& text);

}  // namespace epipe::cli
