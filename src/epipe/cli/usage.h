#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// Messages for wrong usage.
namespace epipe::cli {

// The candidate most similar to `word`; empty if none is close.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// Makes every command accept the program's --config and mention it in its help. A file without flags of the chosen command is an
// UsageError.
void share_config(CLI::App& app);

// The message for an error: what is wrong, its place if in a file, and which help to read. `words`: the command line.
std::string explanation(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

// "run.toml, line 3: " if the error names a key or flag that the file sets in this section; otherwise "run.toml: ".
std::string place_in_file(const std::string& file, const std::string& section, const CLI::ParseError& error);

}  // namespace epipe::cli
