#include "epipe/schedule/resources.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace epipe::schedule {
namespace {

Error bad(std::string text) { return {ErrorCode::kBadSchedule, std::move(text)}; }

Result<void> check_cuts(const PerCut& values, int cuts, std::string_view what) {
  for (const auto& way : {values.forward, values.backward}) {
    if (way.size() != static_cast<std::size_t>(cuts)) {
      return bad(fmt::format("expected {} {} costs, one for each cut, got {}", cuts, what, way.size()));
    }
    const bool fits = std::all_of(way.begin(), way.end(), [](double value) { return std::isfinite(value) && value >= 0; });
    if (!fits) return bad(fmt::format("a {} cost must be a number of at least 0", what));
  }
  return {};
}

PerCut free_cuts(int cuts) {
  const std::vector<double> nothing(static_cast<std::size_t>(cuts), 0);
  return {nothing, nothing};
}

}  // namespace

Resources no_resources(const Placement& placement) {
  const PerCut nothing = free_cuts(placement.stages() - 1);
  Resources free{nothing, nothing, nothing, nothing, 0, std::vector<int>(static_cast<std::size_t>(placement.workers())), {}};
  std::iota(free.machine_of.begin(), free.machine_of.end(), 0);
  free.cores.assign(free.machine_of.size(), std::numeric_limits<double>::infinity());
  return free;
}

Result<void> check(const Resources& resources, const Placement& placement) {
  const int cuts = placement.stages() - 1;
  EPIPE_TRY(check_cuts(resources.encode, cuts, "encode"));
  EPIPE_TRY(check_cuts(resources.decode, cuts, "decode"));
  EPIPE_TRY(check_cuts(resources.carry_out, cuts, "carry"));
  EPIPE_TRY(check_cuts(resources.carry_in, cuts, "carry"));
  if (!std::isfinite(resources.latency) || resources.latency < 0) return bad("the latency must be a number of at least 0");
  if (resources.machine_of.size() != static_cast<std::size_t>(placement.workers())) {
    return bad(fmt::format("expected the machines of {} workers, got {}", placement.workers(), resources.machine_of.size()));
  }
  for (const int machine : resources.machine_of) {
    if (machine >= 0 && static_cast<std::size_t>(machine) < resources.cores.size()) continue;
    return bad(fmt::format("machine {} has no number of cores; {} machines have one", machine, resources.cores.size()));
  }
  for (const double cores : resources.cores) {
    if (!(cores > 0)) return bad(fmt::format("a machine has more than 0 cores, got {}", cores));
  }
  return {};
}

}  // namespace epipe::schedule
