#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/experiment/outcome.h"

namespace epipe::experiment {

// One line of results.jsonl: a finished or failed run.
struct RunResult {
  std::string id;  // the first entry with these flags
  std::uint64_t seed = 0;
  std::string settings;  // see settings_text()
  std::string command;   // without seed and folder; distinguishes runs
  std::string data;      // the last part of the data's folder
  std::string folder;    // the run's folder, relative to the results' folder
  std::string failed;    // why; empty: finished
  Outcome outcome;
};

std::string to_line(const RunResult& result);

// The lines of a results.jsonl in order; empty if there is no such file. Skips a last line truncated by a crash; any other invalid line is
// an error that names it.
Result<std::vector<RunResult>> read_results(const std::string& path);
// Adds a line; it is on disk when the call returns.
Result<void> append_result(const std::string& path, const RunResult& result);

}  // namespace epipe::experiment
