#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe::session {

// Totals over the training steps of a process since it began. Cuts and workers beyond kMostEntries are not counted.
struct StepTotals {
  static constexpr std::size_t kMostEntries = 64;

  std::uint64_t steps = 0;  // committed
  std::uint64_t samples = 0;
  std::uint64_t checkpoints = 0;
  std::vector<boundary::Traffic> forward{};   // by cut
  std::vector<boundary::Traffic> backward{};  // by cut
  std::vector<pipeline::WorkerTimes> workers{};

  // Adds a step's result, committed or not. Queue depths come from the latest step.
  void add(const pipeline::StepResult& result);
  void add(const StepTotals& other);
  // Its sums stay; depths and peaks were of a process that is gone.
  void has_ended();
};

// For messages between processes of one machine, at most kMaxTotalsBytes long.
inline constexpr std::size_t kMaxTotalsBytes = 128 << 10;
std::string to_text(const StepTotals& totals);
// For untrusted text: fields must have the declared types, at most kMostEntries of each, and not be negative.
Result<StepTotals> step_totals_from_text(std::string_view text);

// Whether a process with `before` may have `now` after it has lived for `seconds`: no total falls, and none grows faster than a machine can
// work. This also keeps the sums meaningful numbers.
bool may_follow(const StepTotals& before, const StepTotals& now, double seconds);

}  // namespace epipe::session
