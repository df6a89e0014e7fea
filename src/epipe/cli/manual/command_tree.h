#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The program's commands and flags as plain values, for manual pages and shell completion.
namespace epipe::cli::manual {

struct Flag {
  std::vector<std::string> names;    // "-n", "--ranks"; an argument without a flag: "input"
  std::string type;                  // TEXT, INT, FLOAT, ...; empty: takes no value
  std::vector<std::string> choices;  // if only these are allowed
  std::string expected;              // "a number above 0"; empty with choices
  std::string initial;               // the default; empty if none is shown
  std::string help;
  std::string section;
  bool is_argument = false;
  bool is_repeatable = false;
  bool is_required = false;
};

struct Command {
  std::string path;  // "epipe codec encode"
  std::string help;
  std::string config_section;  // "codec.encode"; empty if its flags cannot be in a file
  std::vector<Flag> flags;     // --config included
  std::vector<Command> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// Everything in --help, in the same order; without hidden commands and flags.
Command command_tree(const CLI::App& program);

// The command and all its subcommands, parents first.
std::vector<const Command*> all_commands(const Command& command);

}  // namespace epipe::cli::manual
