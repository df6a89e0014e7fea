#pragma once

#include <CLI/CLI.hpp>

namespace epipe::cli {

// `epipe serve status | drain | end`: an operator's requests to a running server. serve.got_subcommand tells whether one was chosen.
void add_admin_commands(CLI::App& serve);

}  // namespace epipe::cli
