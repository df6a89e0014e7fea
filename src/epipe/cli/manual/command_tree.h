#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The program's commands and flags as plain values: what manual pages and shell completion are made from.
namespace epipe::cli::manual {

struct Flag {
  std::vector<std::string> names;    // "-n", "--ranks"; an argument without a flag: "input"
  std::string type;                  // TEXT, INT, FLOAT, ...; empty where none follows
  std::vector<std::string> choices;  // where only these are taken
  std::string expected;              // "a number above 0"; empty with choices
  std::string initial;               // what it is when left out; empty where nothing is shown
  std::string help;
  std::string section;
  bool is_argument = false;
  bool is_repeatable = false;
  bool is_required = false;
};

struct Command {
  std::string path;  // "epipe codec encode"
  std::string help;
  std::string config_section;  // "codec.encode"; empty where flags come from no file
  std::vector<Flag> flags;     // --config included
  std::vector<Command> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// Everything that --help shows, in its order; hidden commands and flags are left out.
Command command_tree(const CLI::App& program);

// The command and all below it, parents first.
std::vector<const Command*> all_commands(const Command& command);

}  // namespace epipe::cli::manual
