#pragma once

#include <map>
#include <string>
#include <vector>

#include "epipe/experiment/arguments.h"
#include "epipe/experiment/results.h"

namespace epipe::experiment {

// All seeds of one entry with the same settings. Negative: unknown.
struct Row {
  Entry entry;
  std::string not_run;  // why; empty: it was run
  std::string settings;
  std::string data;  // folder name
  int seeds = 0;
  double steps = 0;
  std::string metric;
  double mean = -1;       // of the metric in percent, or of the error if that was published
  double deviation = -1;  // over the seeds; unknown for a single one
  bool has_mean = false;
  double bits_per_value = -1;
  double wire_bytes_per_step = -1;
  double samples_per_s = -1;
  double seconds_per_batch = -1;
  double speedup = -1;  // over the baseline with the same settings
  std::vector<double> bandwidth_MBps;
  std::map<std::string, double> parts;
  double parameters = -1;
};

// One row per entry and settings that were run; one row with the reason for each entry that was not.
std::vector<Row> make_rows(const std::vector<Entry>& entries, const std::vector<RunResult>& results, const Settings& settings,
                           const Machine& machine);

std::string to_markdown(const std::vector<Row>& rows);
std::string to_json_lines(const std::vector<Row>& rows);

}  // namespace epipe::experiment
