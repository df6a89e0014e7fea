#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace epipe::report {

// What a worker's time goes into, in the order in which it is shown. The names are those of metrics.jsonl and of the trace's
// categories; what the page does not know is "other".
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
