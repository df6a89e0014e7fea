#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::experiment {

// The results of one run. Negative: unknown.
struct Outcome {
  std::string metric;      // accuracy, matthews, ...
  double value = -1;       // on the validation set after the last epoch
  bool has_value = false;  // the metric may be negative
  double steps = 0;
  double samples_per_s = -1;  // without the first step if there are more
  double seconds_per_batch = -1;
  double bits_per_value = -1;  // over all cuts and both directions
  double wire_bytes_per_step = -1;
  std::vector<double> bandwidth_MBps;   // by cut: received bytes over the time in receive, both directions
  std::map<std::string, double> parts;  // seconds per step by kind of work, summed over the workers
  double parameters = -1;
};

// From the text of a metrics.jsonl; an error if it has no step.
Result<Outcome> outcome_of_metrics(std::string_view text);
// From the output of `epipe info --json`.
Result<Outcome> outcome_of_info(std::string_view text);

// Whether the last line is an epoch's: a run stopped within an epoch is not finished.
bool ends_with_epoch(std::string_view metrics);

}  // namespace epipe::experiment
