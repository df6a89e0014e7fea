#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "epipe/base/clock.h"
#include "epipe/train/assemble.h"
#include "epipe/train/metrics.h"
#include "epipe/train/trainer.h"

namespace epipe::train {

// A step whose gradients are there, until its line is written.
struct DoneStep {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool last_of_epoch = false;
  bool error_measured = false;
  std::optional<double> loss_scale;
  pipeline::StepResult result;
  Stopwatch watch{};  // since the batch was asked for
  Stopwatch updating{};
};

// Sums over steps: of the epoch under way, or of the whole call.
struct StepSums {
  double loss = 0;  // of the steps that were not skipped
  double correct = 0;
  double scored = 0;  // predictions of those
  double samples = 0;
  std::uint64_t skipped = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t steps = 0;
  double seconds = 0;  // in the steps themselves: validation and checkpoints are not training
  Stopwatch watch{};

  double mean_loss() const { return loss / scored; }
  double accuracy() const { return correct / scored; }
  double samples_per_s() const { return seconds > 0 ? samples / seconds : 0; }
  void add(const pipeline::StepResult& done, double step_seconds);
};

// What a run reports while it trains: a line of metrics.jsonl for each step, epoch, audit and change of rates, and the observer's calls for
// the first three. The arguments of the constructor outlive it.
class RunLog {
 public:
  RunLog(const TrainConfig& config, const RunParts& run, Observer& observer) : config_(config), run_(run), observer_(observer) {}

  // The run is connected for the first time: what took place before does not count.
  void begin();
  // The next line is that of step `steps_done`; lines of later steps are removed. Before the first line, and after each lost connection.
  void continue_at(std::uint64_t steps_done);
  // Steps of the epoch were lost: it is counted from here.
  void restart_epoch();

  // Its line waits for that of the step, which a run that is disturbed before writes later; the audit is not repeated then.
  void audit(AuditRecord record) { audit_ = std::move(record); }
  void step(const DoneStep& done);  // committed
  // The epoch ends after `steps_done`. `validated` has its validation; `seconds` are those of epoch_seconds() before it.
  void epoch(EpochResult validated, double seconds, std::uint64_t steps_done);
  double epoch_seconds() const { return in_epoch_.watch.seconds(); }
  void sync() const { file_->sync(); }

  std::uint64_t steps() const { return in_call_.steps; }
  TrainResult totals() const;  // of the steps since begin()

 private:
  void write_audit();
  double lr(std::uint64_t step) const { return run_.lr.at(static_cast<std::int64_t>(step)); }

  const TrainConfig& config_;
  const RunParts& run_;
  Observer& observer_;
  std::unique_ptr<MetricsFile> file_;
  std::optional<AuditRecord> audit_;  // before the step under way
  StepSums in_epoch_;
  StepSums in_call_;
  EpochResult last_;
};

}  // namespace epipe::train
