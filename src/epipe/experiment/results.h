#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/experiment/outcome.h"

namespace epipe::experiment {

// One line of results.jsonl: a run that was finished, or one that failed.
struct RunResult {
  std::string id;  // of the first entry with these flags
  std::uint64_t seed = 0;
  std::string settings;  // see settings_text()
  std::string command;   // without seed and folder; tells runs apart
  std::string data;      // the last part of the data's folder
  std::string folder;    // of the run, below that of the results
  std::string failed;    // why; empty: finished
  Outcome outcome;
};

std::string to_line(const RunResult& result);

// The lines of a results.jsonl in order; none where there is no such file. A last line that a crash cut off is left out; anything else
// that does not fit is an error that names the line.
Result<std::vector<RunResult>> read_results(const std::string& path);
// Adds a line; it is on disk when the call returns.
Result<void> append_result(const std::string& path, const RunResult& result);

}  // namespace epipe::experiment
