#pragma once

#include <string_view>

#include "epipe/report/run_data.h"

namespace epipe::report {

struct Metrics {
  std::vector<Step> steps;
  std::vector<Epoch> epochs;
  std::vector<std::string> cut_metrics;  // the names of what steps say of cuts and of workers, as RunData has them
  std::vector<std::string> worker_metrics;
  std::vector<std::string> notes;
  std::vector<Audit> audits;
  std::vector<RateChange> rate_changes;
};

// Adds whole lines of a metrics.jsonl, the first of which has this number; what comes before a wrong one is kept.
Result<void> append_metrics(Metrics& metrics, std::string_view lines, std::string_view file, std::size_t first_line);
// What the steps that were read so far make worth saying.
std::vector<std::string> notes_on(const std::vector<Step>& steps);

// Reads the text of a metrics.jsonl; `file` is its name in errors and notes. Lines of kinds other than step, epoch, audit and rates are
// skipped. A resumed run writes the steps since its checkpoint again: the later line counts.
Result<Metrics> parse_metrics(std::string_view text, std::string_view file);

}  // namespace epipe::report
