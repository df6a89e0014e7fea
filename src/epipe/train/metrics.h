#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "epipe/base/trace.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/events_file.h"

// A run's machine-readable output: one JSON object per line in metrics.jsonl, and trace.json.
namespace epipe::train {

// The name of a cut's codec in each direction.
struct CutNames {
  std::string forward;
  std::string backward;
};

// "cuts": one object per cut and direction carried by a link.
nlohmann::json cuts_json(const pipeline::StepResult& result, const std::vector<CutNames>& codecs, bool error_measured);
// "workers": seconds by kind of work, of replica 0's workers, then replica 1's, ... `optimizer` is the client's, the same for all.
nlohmann::json workers_json(const pipeline::StepResult& result, double optimizer_seconds, int replicas);

// Chrome's trace format, which Perfetto opens: one track per worker, and one per encoder and decoder thread.
std::string trace_json(const std::vector<Tracer::Event>& traced, int workers);

// Appends lines; none are lost if the process is killed. Keeps an earlier process's lines before `first_step`. TensorBoard's file is
// beside it.
class MetricsFile {
 public:
  MetricsFile(const std::string& path, std::uint64_t first_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void append(const nlohmann::json& line);
  void sync() const;  // all lines are on disk when the call returns

 private:
  std::FILE* file_;
  EventsFile events_;
};

}  // namespace epipe::train
