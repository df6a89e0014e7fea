#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "epipe/planner/inputs.h"
#include "epipe/planner/rates.h"
#include "epipe/train/assemble.h"
#include "epipe/train/link_watch.h"

namespace epipe::train {

// Bits per value that a followed link chooses among, above those of the codec itself. More than 8 buy nothing (bench/harm).
inline constexpr double kFollowedBits[] = {1, 2, 4, 8};

// Those, and the bits that codecs of this configuration have: what a table of costs must hold for a LinkFollower.
std::vector<double> followed_bits(const TrainConfig& config);

// What --follow-link needs besides the run.
struct FollowOptions {
  planner::Inputs costs;  // of layers, machines and codecs: auto:N for all N of followed_bits()
  // In place of the run's own: for tests.
  std::function<session::LinkMeasurement(std::uint64_t bytes_up, std::uint64_t bytes_down)> probe{};
  std::function<double()> seconds{};  // a clock
};

// Follows the link of a run: probes it now and then between steps, and where it has changed for good (link_watch.h), chooses rates from
// the tables of the plan (planner/rates.h). What a codec says (auto:2) or the bound of harm asks for (auto) is the least that a cut may
// have, whatever a link or a server seems to do; kFollowedBits are the most. What is chosen goes into the run's record (rate_record.h).
class LinkFollower {
 public:
  // The parts outlive this. Throws std::invalid_argument where there is nothing to choose.
  LinkFollower(RunParts& run, FollowOptions options);

  // Before this step: what has changed from it on. Throws what a probe throws.
  std::optional<RateChange> look(std::uint64_t step);
  void connection_lost() { watch_.forget(); }

 private:
  session::LinkMeasurement probe();
  RateChange choose(const session::LinkMeasurement& link, std::uint64_t step) const;

  RunParts& run_;
  FollowOptions options_;
  planner::Choice choice_;
  std::vector<AuditedCut> open_;
  LinkWatch watch_;
};

}  // namespace epipe::train
