#include "epipe/train/link_watch.h"

#include <algorithm>

#include "epipe/base/median.h"

namespace epipe::train {
namespace {

using session::LinkMeasurement;

constexpr double kProbeSeconds = 0.05;  // for the bytes of one direction
constexpr std::uint64_t kFirstBytes = std::uint64_t{1} << 16;
constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 14;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 21;

// 1: faster by the factor, -1: slower, 0: neither.
int change_of(double known, double found) {
  if (found >= LinkWatch::kFactor * known) return 1;
  return known >= LinkWatch::kFactor * found ? -1 : 0;
}

// In both directions. One that is faster up and slower down has changed as well.
struct Change {
  int up = 0;
  int down = 0;
  bool operator==(const Change&) const = default;
};
Change change_of(const LinkMeasurement& known, const LinkMeasurement& found) {
  return {change_of(known.up, found.up), change_of(known.down, found.down)};
}

}  // namespace

std::uint64_t LinkWatch::probe_bytes(double rate) const {
  if (rate <= 0) return kFirstBytes;
  const double seconds = std::max(kProbeSeconds, 2 * newest_.round_trip);
  return std::clamp(static_cast<std::uint64_t>(rate * seconds), kLeastBytes, kMostBytes);
}

bool LinkWatch::has_lasted() const {
  const Probe& first = changed_.front();
  const Probe& last = changed_.back();
  return changed_.size() >= kProbes && last.step >= first.step + kSteps && last.at >= first.at + kSeconds;
}

std::optional<LinkMeasurement> LinkWatch::take(const LinkMeasurement& found, std::uint64_t step, double now, double seconds) {
  newest_ = found;
  due_ = now + std::max(kLeastPause, seconds / kShare);
  if (!known_) return known_ = found;
  const Change change = change_of(*known_, found);
  if (change == Change{}) {
    changed_.clear();
    return std::nullopt;
  }
  if (!changed_.empty() && change_of(*known_, changed_.back().rates) != change) changed_.clear();
  changed_.push_back({found, step, now});
  due_ = now + std::max(kConfirmPause, seconds / kConfirmShare);
  if (!has_lasted()) return std::nullopt;
  const auto median_of = [&](double LinkMeasurement::*member) {
    std::vector<double> values;
    for (const Probe& probe : changed_) values.push_back(probe.rates.*member);
    return median(values);
  };
  known_ = LinkMeasurement{median_of(&LinkMeasurement::up), median_of(&LinkMeasurement::down), median_of(&LinkMeasurement::round_trip)};
  changed_.clear();
  due_ = now + std::max(kLeastPause, seconds / kShare);
  return known_;
}

}  // namespace epipe::train
