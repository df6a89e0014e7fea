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
};

// Reads the text of a metrics.jsonl; `file` is its name in errors and notes. Lines of kinds other than step and epoch are skipped. A
// resumed run writes the steps since its checkpoint again: the later line counts.
Result<Metrics> parse_metrics(std::string_view text, std::string_view file);

}  // namespace epipe::report
