#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// What to say to somebody who typed something else than the program takes.
namespace epipe::cli {

// The candidate that `word` was probably meant to be; empty where none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// Every command takes --config, which is the program's, and says so in its help.
void share_config(CLI::App& app);

// What is wrong, where it stands if in a file, and which help to read. `words` are those of the command line.
std::string explanation(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

// "run.toml, line 3: " where the error names a key or a flag that the file sets in this section; otherwise "run.toml: ".
std::string place_in_file(const std::string& file, const std::string& section, const CLI::ParseError& error);

}  // namespace epipe::cli
