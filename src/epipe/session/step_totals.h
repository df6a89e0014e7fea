#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe::session {

// What the training steps of a process have come to since it began. Cuts and workers beyond kMostEntries are not counted.
struct StepTotals {
  static constexpr std::size_t kMostEntries = 64;

  std::uint64_t steps = 0;  // committed
  std::uint64_t samples = 0;
  std::uint64_t checkpoints = 0;
  std::vector<boundary::Traffic> forward{};   // by cut
  std::vector<boundary::Traffic> backward{};  // by cut
  std::vector<pipeline::WorkerTimes> workers{};

  // Gradients of a step, committed or not. Queue depths are those of the last one.
  void add(const pipeline::StepResult& result);
  void add(const StepTotals& other);
  // Its sums stay; depths and peaks were of a process that is gone.
  void has_ended();
};

// For a message between the processes of one machine, at most kMaxTotalsBytes long.
inline constexpr std::size_t kMaxTotalsBytes = 128 << 10;
std::string to_text(const StepTotals& totals);
// Trusts nothing: fields of the declared types, at most kMostEntries of each, nothing negative.
Result<StepTotals> step_totals_from_text(std::string_view text);

// Whether a process that had `before` may have `now` after living for so many seconds: nothing falls, and nothing grows faster than a
// machine can work. Sums of what is possible stay numbers that mean something.
bool may_follow(const StepTotals& before, const StepTotals& now, double seconds);

}  // namespace epipe::session
