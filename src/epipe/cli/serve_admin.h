#pragma once

#include <CLI/CLI.hpp>

namespace epipe::cli {

// `epipe serve status | drain | end`: what an operator asks of a server that runs. Whether one was chosen: serve.got_subcommand.
void add_admin_commands(CLI::App& serve);

}  // namespace epipe::cli
