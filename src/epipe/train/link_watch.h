#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epipe/session/coordinator.h"

namespace epipe::train {

// Tells a link that has changed from one that had a bad moment. Pure: whoever calls probes the link and reads the clock.
//
//   rate ▲ ──●──●──╮ ╭──●──╮
//        │         ╰●╯     │                a bad moment is no change
//        │                 ╰─●──●──●──▶     kProbes in a row over kSteps steps and kSeconds seconds, off by kFactor or more in the same
//        └────────────────────────────▶     way, are one: from then on their median is what is known
class LinkWatch {
 public:
  static constexpr double kFactor = 1.5;
  static constexpr std::size_t kProbes = 3;
  static constexpr std::uint64_t kSteps = 5;
  static constexpr double kSeconds = 6;
  static constexpr double kShare = 0.01;        // of the time that probes may take while nothing has changed
  static constexpr double kLeastPause = 5;      // seconds between two probes then
  static constexpr double kConfirmShare = 0.2;  // while a change is to be confirmed
  static constexpr double kConfirmPause = 1.5;

  // Whether a probe is to come before this step, at this time in seconds. The first one is.
  bool is_due(double now) const { return now >= due_; }
  // What a probe found that took `seconds` and ended `now`. Returns the link as it is now where it has changed for good, and for the first
  // probe.
  std::optional<session::LinkMeasurement> take(const session::LinkMeasurement& found, std::uint64_t step, double now, double seconds);
  // Of a run that goes on: the link that its rates were chosen for.
  void resume(const session::LinkMeasurement& known) { known_ = known; }
  // The link was lost and is back: what was to be confirmed is forgotten.
  void forget() { changed_.clear(); }
  // What a probe should send for a time long enough to measure and short enough not to matter.
  std::uint64_t probe_bytes(double rate) const;

  const std::optional<session::LinkMeasurement>& known() const { return known_; }

 private:
  struct Probe {
    session::LinkMeasurement rates;
    std::uint64_t step = 0;
    double at = 0;
  };
  bool has_lasted() const;

  std::optional<session::LinkMeasurement> known_;
  session::LinkMeasurement newest_;
  std::vector<Probe> changed_;  // in a row, all off what is known in the same way
  double due_ = 0;
};

}  // namespace epipe::train
