#pragma once

#include <string_view>

#include "epipe/report/run_data.h"

namespace epipe::report {

struct Metrics {
  std::vector<Step> steps;
  std::vector<Epoch> epochs;
  std::vector<std::string> cut_metrics;  // the names of the metrics of cuts and of workers, as in RunData
  std::vector<std::string> worker_metrics;
  std::vector<std::string> notes;
  std::vector<Audit> audits;
  std::vector<RateChange> rate_changes;
};

// Adds whole lines of a metrics.jsonl; `first_line` is the number of the first. Lines before an invalid one are kept.
Result<void> append_metrics(Metrics& metrics, std::string_view lines, std::string_view file, std::size_t first_line);
// Notes on the steps read so far.
std::vector<std::string> notes_on(const std::vector<Step>& steps);

// Parses the text of a metrics.jsonl; `file` is its name in errors and notes. Skips lines of kinds other than step, epoch, audit and rates.
// A resumed run writes the steps since its checkpoint again: the later line counts.
Result<Metrics> parse_metrics(std::string_view text, std::string_view file);

}  // namespace epipe::report
