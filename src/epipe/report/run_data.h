#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/report/activity.h"

// The content of a run directory as plain values. NaN: not in the file.
namespace epipe::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class Direction : std::uint8_t { kForward, kBackward };

constexpr std::string_view name(Direction direction) { return direction == Direction::kForward ? "forward" : "backward"; }

// What crossed one cut in one direction during one step.
struct CutStep {
  int cut = 0;
  Direction direction = Direction::kForward;
  std::string codec;
  double wire_bytes = kUnknown;
  double values = kUnknown;
  double bits_per_value = kUnknown;
  double rel_error = kUnknown;
  std::vector<double> values_of{};  // all numbers of the line, by the index of their names in RunData::cut_metrics
};

// The result of an audit before a step (docs/codecs.md): what each cut and direction does, and all together.
struct Audit {
  struct Cut {
    int cut = 0;
    Direction direction = Direction::kForward;
    double harm = kUnknown;
    double loss_added = kUnknown;
  };
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  double harm = kUnknown;
  double bound = kUnknown;
  double loss_added = kUnknown;
  double loss_bound = kUnknown;
  std::vector<Cut> cuts;
};

// Bits that were chosen for a link, from a step on (docs/plan.md).
struct RateChange {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  double up_MBps = kUnknown;  // that the link carried then; unknown in a run that repeats a record
  double down_MBps = kUnknown;
};

struct WorkerStep {
  int worker = 0;
  std::array<double, kActivities.size()> seconds{};  // by activity; 0 if not in the file
  double peak_memory_bytes = kUnknown;
  std::vector<double> values_of{};  // all numbers of the line, by the index of their names in RunData::worker_metrics
};

struct Step {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // counted over all epochs
  double loss = kUnknown;
  double accuracy = kUnknown;
  double samples = kUnknown;
  double seconds = kUnknown;
  std::vector<CutStep> cuts;
  std::vector<WorkerStep> workers;
};

struct Epoch {
  std::int64_t epoch = 0;
  double loss = kUnknown;
  double accuracy = kUnknown;
  double val_loss = kUnknown;
  double val_accuracy = kUnknown;
  double seconds = kUnknown;
  double samples_per_s = kUnknown;
};

struct Span {
  std::string name;  // "F 0 1"
  std::size_t activity = kOther;
  double start_us = 0;
  double duration_us = 0;
  std::size_t track = 0;   // index into Trace::tracks
  std::int64_t step = -1;  // -1: none
};

// A worker's thread, or a helper thread, whose ids start at 100.
struct Track {
  std::int64_t process = 0;
  std::int64_t thread = 0;
  std::string name;
};

struct Trace {
  std::vector<Track> tracks;  // in the order of process and thread
  std::vector<Span> spans;    // in the order of their start
};

// Counts in bins of equal width; the first and last count are for values below and above the range.
struct Bins {
  double low = kUnknown;
  double width = kUnknown;
  std::vector<double> counts;
};

struct CodecError {
  std::string codec;
  double bits_per_value = kUnknown;
  double rel_error = kUnknown;
};

// Statistics by `epipe inspect` of the tensors that crossed one cut in one direction.
struct InspectedCut {
  int cut = 0;
  Direction direction = Direction::kForward;
  std::string layer;
  double values = kUnknown;
  double zeros = kUnknown;
  double min = kUnknown;
  double max = kUnknown;
  double mean = kUnknown;
  double deviation = kUnknown;
  double kurtosis = kUnknown;
  Bins histogram;       // of the values
  Bins log2_histogram;  // of the magnitudes that are not zero
  std::vector<CodecError> codecs;
};

struct RunData {
  std::string name;    // the last part of the folder's path
  std::string folder;  // as the user gave it
  std::vector<Step> steps;
  std::vector<Epoch> epochs;
  std::vector<Audit> audits;
  std::vector<RateChange> rate_changes;
  std::vector<std::string> cut_metrics;     // names, in the order in which they appear
  std::vector<std::string> worker_metrics;  // names
  Trace trace;
  std::vector<InspectedCut> inspection;
  std::string config;              // the text of config.toml
  std::vector<std::string> notes;  // what a reader of the page should know: a truncated line, a NaN loss
};

// Reads metrics.jsonl and, if they exist, trace.json, inspect.json and config.toml; inspect.json alone is enough, too. A file that a killed
// run left incomplete is read as far as possible; any other invalid content is an error that names file and line.
Result<RunData> read_run(const std::string& folder);

// The parts of read_run: the last part of the folder's full path, and trace.json, inspect.json and config.toml if they exist.
std::string run_name(const std::string& folder);
Result<void> read_trace(RunData& run);
Result<void> read_inspection(RunData& run);
Result<void> read_config(RunData& run);

}  // namespace epipe::report
