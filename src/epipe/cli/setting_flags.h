#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/train/setting.h"

namespace epipe::cli {

// Adds the flag of a setting: it sets the bound value, which outlives the command, and is checked and shown as declared. `more` is appended
// to the help.
CLI::Option* add_setting_flag(CLI::App& command, const train::Setting& setting, const std::string& more = "");

}  // namespace epipe::cli
