#pragma once

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "epipe/schedule/costs.h"

namespace epipe::schedule {

// When the input of each action is there, as far as the actions so far tell. A transfer overlaps with computing. A link joins two workers,
// one for each direction: what any cut sends from one to the other follows each other on it, then takes its cut's delay. Within a worker
// a tensor is there at once.
class Arrivals {
 public:
  // Both must outlive this.
  Arrivals(const Placement& placement, const Costs& costs) : placement_(placement), costs_(costs) {
    for (auto& arrives : arrives_) arrives.resize(placement.worker_of.size());
  }

  // The action, the next one of its worker, ends at `end`. Returns when its output is where it is needed.
  double add(const Action& action, double end);
  // An action that takes nothing from a cut finds its input as soon as its worker comes to it.
  std::optional<double> of(const Action& action) const;

 private:
  std::vector<double>& arrives(Direction direction, int stage) {
    return arrives_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(stage)];
  }
  double& link_free(int from, int to) {
    const auto worker = [&](int stage) { return placement_.worker_of[static_cast<std::size_t>(stage)]; };
    return link_free_[{worker(from), worker(to)}];
  }

  const Placement& placement_;
  const Costs& costs_;
  std::array<std::vector<std::vector<double>>, 2> arrives_;  // by direction and the stage it leads to, [n], [i so far]
  std::map<std::pair<int, int>, double> link_free_{};        // by workers; what a worker sends, it sends in the order of its actions
};

}  // namespace epipe::schedule
