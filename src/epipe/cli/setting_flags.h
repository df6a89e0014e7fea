#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/train/setting.h"

namespace epipe::cli {

// The flag of a setting: sets the value it is bound to, which outlives the command, and is checked and shown as declared. `more` follows
// the help.
CLI::Option* add_setting_flag(CLI::App& command, const train::Setting& setting, const std::string& more = "");

}  // namespace epipe::cli
