#include "epipe/report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace epipe::report {
namespace {

// Adds up known values; NaN if there are none.
class Sum {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    ++count_;
  }
  double total() const { return count_ == 0 ? kUnknown : sum_; }
  double mean() const { return count_ == 0 ? kUnknown : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  std::size_t count_ = 0;
};

struct CutSums {
  std::string codec;
  Sum bytes, values, bits;
};

std::string codecs_text(const std::map<std::pair<int, Direction>, CutSummary>& cuts) {
  std::set<std::string> forward;
  std::set<std::string> backward;
  for (const auto& [at, cut] : cuts) (at.second == Direction::kForward ? forward : backward).insert(cut.codec.empty() ? "-" : cut.codec);
  if (forward.empty() && backward.empty()) return "-";
  if (forward == backward || backward.empty()) return fmt::format("{}", fmt::join(forward, " and "));
  return fmt::format("forward {}, backward {}", fmt::join(forward, " and "), fmt::join(backward, " and "));
}

double top_accuracy(const RunData& run) {
  double validated = -1;
  double trained = -1;
  for (const Epoch& epoch : run.epochs) {
    if (epoch.val_accuracy > validated) validated = epoch.val_accuracy;
    if (epoch.accuracy > trained) trained = epoch.accuracy;
  }
  const double top = validated >= 0 ? validated : trained;
  return top >= 0 ? top : kUnknown;
}

double last_losses(const RunData& run) {
  Sum losses;
  const std::size_t count = std::max<std::size_t>(1, run.steps.size() / 10);
  for (std::size_t k = run.steps.size() - std::min(count, run.steps.size()); k < run.steps.size(); ++k) losses.add(run.steps[k].loss);
  return losses.mean();
}

double seconds_of(const RunData& run) {
  Sum seconds;
  for (const Epoch& epoch : run.epochs) seconds.add(epoch.seconds);
  for (const Step& step : run.steps) {
    if (run.epochs.empty() || step.epoch > run.epochs.back().epoch) seconds.add(step.seconds);
  }
  return seconds.total();
}

double samples_per_s(const RunData& run) {
  Sum samples;
  Sum seconds;
  for (const Step& step : run.steps) {
    if (!std::isfinite(step.samples) || !std::isfinite(step.seconds)) continue;
    samples.add(step.samples);
    seconds.add(step.seconds);
  }
  if (seconds.total() > 0) return samples.total() / seconds.total();
  return run.epochs.empty() ? kUnknown : run.epochs.back().samples_per_s;
}

}  // namespace

std::map<std::pair<int, Direction>, CutSummary> summarize_cuts(const RunData& run) {
  std::map<std::pair<int, Direction>, CutSums> sums;
  for (const Step& step : run.steps) {
    for (const CutStep& cut : step.cuts) {
      CutSums& sum = sums[{cut.cut, cut.direction}];
      sum.codec = cut.codec;
      sum.bytes.add(cut.wire_bytes);
      sum.values.add(cut.values);
      sum.bits.add(cut.bits_per_value);
    }
  }
  std::map<std::pair<int, Direction>, CutSummary> cuts;
  for (const auto& [at, sum] : sums) {
    const double by_values = 8 * sum.bytes.total() / sum.values.total();
    cuts[at] = {sum.codec, sum.bytes.mean(), std::isfinite(by_values) ? by_values : sum.bits.mean()};
  }
  return cuts;
}

std::map<int, WorkerSummary> summarize_workers(const RunData& run) {
  std::map<int, WorkerSummary> workers;
  std::map<int, double> steps;
  for (const Step& step : run.steps) {
    for (const WorkerStep& worker : step.workers) {
      WorkerSummary& summary = workers[worker.worker];
      steps[worker.worker] += 1;
      for (std::size_t a = 0; a < kActivities.size(); ++a) summary.seconds_per_step[a] += worker.seconds[a];
      summary.peak_memory_bytes = std::fmax(summary.peak_memory_bytes, worker.peak_memory_bytes);
    }
  }
  for (auto& [worker, summary] : workers) {
    for (double& seconds : summary.seconds_per_step) seconds /= steps[worker];
  }
  return workers;
}

Summary summarize(const RunData& run) {
  const auto cuts = summarize_cuts(run);
  Summary summary;
  summary.codec = codecs_text(cuts);
  summary.top_accuracy = top_accuracy(run);
  summary.final_loss = run.epochs.empty() ? last_losses(run) : run.epochs.back().loss;
  if (!run.epochs.empty()) summary.final_val_loss = run.epochs.back().val_loss;
  Sum bytes;
  for (const auto& [at, cut] : cuts) bytes.add(cut.bytes_per_step);
  summary.bytes_per_step = bytes.total();
  summary.samples_per_s = samples_per_s(run);
  summary.seconds = seconds_of(run);
  return summary;
}

}  // namespace epipe::report
