#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace epipe::report {

// How a worker spends its time, in the order shown. The names match metrics.jsonl and the trace's categories; any other name counts as
// "other".
inline constexpr std::array<std::string_view, 10> kActivities = {"forward", "backward",   "optimizer", "encode", "decode",
                                                                 "send",    "all_reduce", "data",      "wait",   "other"};

inline constexpr std::size_t kOther = kActivities.size() - 1;

constexpr std::size_t activity_of(std::string_view name) {
  for (std::size_t a = 0; a < kOther; ++a) {
    if (kActivities[a] == name) return a;
  }
  return kOther;
}

}  // namespace epipe::report
