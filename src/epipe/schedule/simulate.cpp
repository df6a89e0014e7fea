#include "epipe/schedule/simulate.h"

#include <algorithm>
#include <array>
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

// A worker or a link that is busy for `work` with each micro-batch is busy for m times that. Before it starts, micro-batch 0 must have
// come there; after it ends, micro-batch m - 1 must go back to stage 0:
//
//   |-- road to it --|== m x work ==|-- road from it --|
//
// A worker starts and ends with its first stage; the road to a link and from it is all but the link itself. A worker that may split its
// backwards may end with the gradients of weights, for which nobody waits: then there is no road from it.
double least_makespan(const Placement& placement, int chunks, const Costs& costs, bool splits_backward) {
  const auto link = [&](Direction direction, int cut) { return placement.crosses(cut) ? costs.transfer(direction, cut) : 0; };
  const auto workers = static_cast<std::size_t>(placement.workers());
  std::vector<double> outside(workers, -1);  // the roads; unknown before the worker's first stage
  std::vector<double> work(workers, 0);
  std::array<double, 2> road{};  // of one micro-batch, so far, by direction
  double slowest_link = 0;
  for (int j = 0; j < placement.stages(); ++j) {
    for (const Direction direction : kDirections) {
      const double transfer = j > 0 ? link(direction, j - 1) : 0;
      road[static_cast<std::size_t>(direction)] += transfer;
      slowest_link = std::max(slowest_link, transfer);
    }
    const auto w = static_cast<std::size_t>(placement.worker_of[static_cast<std::size_t>(j)]);
    if (outside[w] < 0) outside[w] = splits_backward ? road[0] : road[0] + road[1];
    const double whole = costs.of(Kind::kBackward, j);
    const double input = costs.of(Kind::kBackwardInput, j);
    work[w] += costs.of(Kind::kForward, j) + (splits_backward ? std::min(whole, input + costs.of(Kind::kBackwardWeights, j)) : whole);
    road[0] += costs.of(Kind::kForward, j);
    road[1] += splits_backward ? std::min(whole, input) : whole;
  }
  double least = road[0] + road[1] + (chunks - 1) * slowest_link;
  for (std::size_t w = 0; w < workers; ++w) least = std::max(least, outside[w] + chunks * work[w]);
  return least;
}

}  // namespace epipe::schedule
