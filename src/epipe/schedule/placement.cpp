#include "epipe/schedule/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace epipe::schedule {

int Placement::workers() const { return worker_of.empty() ? 0 : *std::max_element(worker_of.begin(), worker_of.end()) + 1; }

std::string to_string(const Placement& placement) { return fmt::format("{}", fmt::join(placement.worker_of, ",")); }

Result<void> check(const Placement& placement) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadSchedule, std::move(message)}; };
  if (placement.worker_of.empty() || placement.worker_of.size() > kMaxStages) {
    return bad(fmt::format("a placement has 1 to {} stages, got {}", kMaxStages, placement.worker_of.size()));
  }
  const auto [least, most] = std::minmax_element(placement.worker_of.begin(), placement.worker_of.end());
  if (*least < 0 || *most >= kMaxStages) {
    return bad(fmt::format("workers are numbered from 0 to at most {}, got {}", kMaxStages - 1, *least < 0 ? *least : *most));
  }
  for (int worker = 0; worker < *most; ++worker) {
    if (std::find(placement.worker_of.begin(), placement.worker_of.end(), worker) == placement.worker_of.end()) {
      return bad(fmt::format("placement {} gives no stage to worker {}; number the workers 0 to {} without gaps", to_string(placement),
                             worker, *most));
    }
  }
  return {};
}

Result<Placement> parse_placement(std::string_view text) {
  Placement placement;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (placement.worker_of.size() <= kMaxStages) {
    int worker = 0;
    const auto [stop, status] = std::from_chars(at, end, worker);
    if (status != std::errc() || (stop != end && *stop != ',')) {
      return Error{ErrorCode::kBadSchedule,
                   fmt::format("expected the worker of each stage, as in 0,1,0, got \"{}\" (at character {})", text, at - text.data() + 1)};
    }
    placement.worker_of.push_back(worker);
    if (stop == end) break;
    at = stop + 1;
  }
  EPIPE_TRY(check(placement));
  return placement;
}

}  // namespace epipe::schedule
