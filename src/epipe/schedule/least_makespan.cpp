#include <algorithm>
#include <map>

#include "epipe/schedule/simulate.h"

namespace epipe::schedule {
namespace {

// One micro-batch alone on its road from stage 0 to the end and back, and what workers and links do for it on the way.
class Road {
 public:
  Road(const Placement& placement, const Costs& costs, bool splits_backward) : placement_(placement), costs_(costs) {
    const int n = placement.stages();
    for (int j = 0; j < n; ++j) {
      use({worker_of(j), worker_of(j)}, costs.of(Kind::kForward, j));
      if (j + 1 < n) cross(Direction::kForward, j);
    }
    for (int j = n - 1; j >= 0; --j) {
      if (j + 1 < n) cross(Direction::kBackward, j);
      const double whole = costs.of(Kind::kBackward, j);
      use({worker_of(j), worker_of(j)}, splits_backward ? std::min(whole, costs.of(Kind::kBackwardInput, j)) : whole);
    }
  }

  // Of any worker or link.
  double least_makespan(int chunks) const {
    double least = now_;
    for (const auto& [resource, uses] : uses_) {
      for (std::size_t p = 0; p < uses.size(); ++p) {
        double busy = 0;
        for (std::size_t q = p; q < uses.size(); ++q) {
          busy += uses[q].end - uses[q].start;
          least = std::max(least, uses[p].start + chunks * busy + now_ - uses[q].end);
        }
      }
    }
    return least;
  }

  double reaches(int worker) const { return uses_.at({worker, worker}).front().start; }

 private:
  using Resource = std::pair<int, int>;  // a worker and itself, or a link from one worker to another

  int worker_of(int stage) const { return placement_.worker_of[static_cast<std::size_t>(stage)]; }
  void use(const Resource& resource, double busy) {
    uses_[resource].push_back({now_, now_ + busy});
    now_ += busy;
  }
  void cross(Direction direction, int cut) {
    if (!placement_.crosses(cut)) return;
    const bool forward = direction == Direction::kForward;
    use({worker_of(forward ? cut : cut + 1), worker_of(forward ? cut + 1 : cut)}, costs_.transfer(direction, cut));
    now_ += costs_.delay_of(cut);
  }

  const Placement& placement_;
  const Costs& costs_;
  double now_ = 0;
  std::map<Resource, std::vector<Interval>> uses_{};  // in the order of the road
};

// A worker that may split its backwards may end with the gradients of weights, for which nobody waits: there is no road from it.
double least_of_workers(const Placement& placement, int chunks, const Costs& costs, const Road& road) {
  std::vector<double> work(static_cast<std::size_t>(placement.workers()), 0);
  for (int j = 0; j < placement.stages(); ++j) {
    const double split = costs.of(Kind::kBackwardInput, j) + costs.of(Kind::kBackwardWeights, j);
    work[static_cast<std::size_t>(placement.worker_of[static_cast<std::size_t>(j)])] +=
        costs.of(Kind::kForward, j) + std::min(costs.of(Kind::kBackward, j), split);
  }
  double least = 0;
  for (std::size_t w = 0; w < work.size(); ++w) least = std::max(least, road.reaches(static_cast<int>(w)) + chunks * work[w]);
  return least;
}

}  // namespace

// A worker or a link is used at some places of the road: stage 1 forward and backward, a link by a cut forward and by another backward.
// Take the uses from p to q. None starts before the first micro-batch has come to p, and after the last one ends a micro-batch must go
// on from q:
//
//   |-- road to p --|== m x (uses p to q) ==|-- road from q --|
double least_makespan(const Placement& placement, int chunks, const Costs& costs, bool splits_backward) {
  const Road road(placement, costs, splits_backward);
  const double least = road.least_makespan(chunks);
  return splits_backward ? std::max(least, least_of_workers(placement, chunks, costs, road)) : least;
}

}  // namespace epipe::schedule
