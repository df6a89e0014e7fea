#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "epipe/report/run_data.h"

namespace epipe::report {

// One cut and direction over all steps of a run.
struct CutSummary {
  std::string codec;  // of the last step
  double bytes_per_step = kUnknown;
  double bits_per_value = kUnknown;
};

// One worker over all steps of a run.
struct WorkerSummary {
  std::array<double, kActivities.size()> seconds_per_step{};
  double peak_memory_bytes = kUnknown;
};

// A run in one row.
struct Summary {
  std::string codec;               // "sort:6+2", "forward fp16, backward uniform:8", or "-" without a cut
  double top_accuracy = kUnknown;  // on validation data, or on training data without validation
  double final_loss = kUnknown;    // training loss of the last epoch; before an epoch ends, over the last tenth of the steps
  double final_val_loss = kUnknown;
  double bytes_per_step = kUnknown;  // over all cuts and both directions
  double samples_per_s = kUnknown;   // in training
  double seconds = kUnknown;         // finished epochs, validation included, and the steps since
};

std::map<std::pair<int, Direction>, CutSummary> summarize_cuts(const RunData& run);
std::map<int, WorkerSummary> summarize_workers(const RunData& run);
Summary summarize(const RunData& run);

}  // namespace epipe::report
