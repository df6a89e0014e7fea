#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "epipe/experiment/arguments.h"
#include "epipe/experiment/results.h"

namespace epipe::cli {

struct RunnerConfig {
  experiment::Settings settings;
  experiment::Machine machine;
  int seeds = 1;
  std::uint64_t first_seed = 0;
  std::string out;       // holds results.jsonl and a folder for each run
  bool dry_run = false;  // print the commands only
};

// Runs experiments one after the other, each in its own process; skips runs that have results, and continues interrupted runs from their
// checkpoints. Reports progress on stdout. Returns how many runs failed.
int run_experiments(const std::vector<experiment::Entry>& entries, const RunnerConfig& config, const std::atomic<bool>& stop);

}  // namespace epipe::cli
