#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/schedule/placement.h"

namespace epipe::schedule {

inline constexpr int kMaxChunks = 4096;

enum class Kind : std::uint8_t { kForward, kBackward };

// One micro-batch through one stage. On the last stage a forward ends with the loss, and its backward starts from there.
struct Action {
  Kind kind = Kind::kForward;
  int micro_batch = 0;  // i, 0 to m - 1
  int stage = 0;        // j, 0 to n - 1

  bool operator==(const Action&) const = default;
};

inline char letter(Kind kind) { return kind == Kind::kForward ? 'F' : 'B'; }
inline std::string to_string(const Action& a) { return fmt::format("{} {} {}", letter(a.kind), a.micro_batch, a.stage); }  // "F 0 1"

// Who runs which micro-batch when: every worker runs its list from front to back. On every stage both forward and backward run in
// ascending micro-batch order, so gradients are summed in one order whatever the schedule.
struct Schedule {
  Placement placement;
  int chunks = 0;               // m
  std::vector<int> live_limit;  // [n] most micro-batches a stage may hold between their forward and their backward
  std::vector<std::vector<Action>> per_worker;
};

}  // namespace epipe::schedule
