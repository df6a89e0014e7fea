#include "epipe/schedule/simulate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "epipe/schedule/arrivals.h"
#include "epipe/schedule/shared_run.h"
#include "epipe/schedule/validate.h"

namespace epipe::schedule {
namespace {

// Walks the lists of a valid schedule, each as far as the inputs known so far allow, until all are at their end.
class Simulator {
 public:
  Simulator(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), arrivals_(schedule.placement, costs), free_at_(schedule.per_worker.size(), 0) {
    timeline_.per_worker.resize(free_at_.size());
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < free_at_.size(); ++w) {
        while (advance(w)) moved = true;
      }
    }
    return std::move(timeline_);
  }

 private:
  bool advance(std::size_t w) {
    auto& done = timeline_.per_worker[w];
    if (done.size() == schedule_.per_worker[w].size()) return false;
    const Action& action = schedule_.per_worker[w][done.size()];
    const auto input = arrivals_.of(action);
    if (!input) return false;
    const double start = std::max(free_at_[w], *input);
    free_at_[w] = start + costs_.of(action);
    done.push_back({start, free_at_[w]});
    timeline_.makespan = std::max(timeline_.makespan, free_at_[w]);
    arrivals_.add(action, free_at_[w]);
    return true;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Arrivals arrivals_;
  std::vector<double> free_at_;  // by worker
  Timeline timeline_;
};

void measure_bubble(Timeline& timeline) {
  for (const auto& intervals : timeline.per_worker) {
    const double busy =
        std::accumulate(intervals.begin(), intervals.end(), 0.0, [](double s, const Interval& t) { return s + t.end - t.start; });
    timeline.bubble_of_worker.push_back(timeline.makespan > 0 ? 1 - busy / timeline.makespan : 0);
  }
  const auto& bubbles = timeline.bubble_of_worker;
  timeline.bubble = std::accumulate(bubbles.begin(), bubbles.end(), 0.0) / static_cast<double>(bubbles.size());
}

void count_live(const Schedule& schedule, Timeline& timeline) {
  std::vector<int> live(schedule.placement.worker_of.size(), 0);
  timeline.peak_live_of_stage.assign(live.size(), 0);
  for (const auto& actions : schedule.per_worker) {
    int here = 0;
    int peak = 0;
    for (const Action& a : actions) {
      const auto j = static_cast<std::size_t>(a.stage);
      const int change = info(a.kind).live;
      peak = std::max(peak, here += change);
      timeline.peak_live_of_stage[j] = std::max(timeline.peak_live_of_stage[j], live[j] += change);
    }
    timeline.peak_live_of_worker.push_back(peak);
  }
}

}  // namespace

Result<Timeline> simulate(const Schedule& schedule, const Costs& costs) {
  EPIPE_TRY(validate(schedule, std::numeric_limits<int>::max()));
  EPIPE_TRY(check(costs, schedule.placement.stages()));
  Timeline timeline = Simulator(schedule, costs).run();
  measure_bubble(timeline);
  count_live(schedule, timeline);
  return timeline;
}

Result<Timeline> simulate(const Schedule& schedule, const Costs& costs, const Resources& resources) {
  EPIPE_TRY(validate(schedule, std::numeric_limits<int>::max()));
  EPIPE_TRY(check(costs, schedule.placement.stages()));
  EPIPE_TRY(check(resources, schedule.placement));
  Timeline timeline;
  timeline.per_worker = SharedRun(schedule, costs, resources).run();
  for (const auto& intervals : timeline.per_worker) {
    if (!intervals.empty()) timeline.makespan = std::max(timeline.makespan, intervals.back().end);
  }
  measure_bubble(timeline);
  count_live(schedule, timeline);
  return timeline;
}

double serial_time(int chunks, const Costs& costs) {
  return chunks * (std::accumulate(costs.forward.begin(), costs.forward.end(), 0.0) +
                   std::accumulate(costs.backward.begin(), costs.backward.end(), 0.0));
}

}  // namespace epipe::schedule
