#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::schedule {

inline constexpr int kMaxStages = 256;

// The worker of each stage: 0,1,2 is a chain, 0,1,0 the client/server ring, 0,0,1 has two stages on worker 0.
struct Placement {
  std::vector<int> worker_of;  // [n]

  int stages() const { return static_cast<int>(worker_of.size()); }
  int workers() const;
  // Cut j, between stage j and j + 1, joins two workers. Otherwise the tensor is handed over within one.
  bool crosses(int cut) const { return worker_of[static_cast<std::size_t>(cut)] != worker_of[static_cast<std::size_t>(cut) + 1]; }

  bool operator==(const Placement&) const = default;
};

std::string to_string(const Placement& placement);  // "0,1,0"

// 1 to kMaxStages stages, workers numbered from 0 without gaps.
Result<void> check(const Placement& placement);
Result<Placement> parse_placement(std::string_view text);

}  // namespace epipe::schedule
