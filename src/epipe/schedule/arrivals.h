#pragma once

#include <array>
#include <optional>
#include <vector>

#include "epipe/schedule/costs.h"

namespace epipe::schedule {

// When the input of each action is there, as far as the actions so far tell. A transfer overlaps with computing; the transfers of one
// cut and direction follow each other. Within a worker a tensor is there at once.
class Arrivals {
 public:
  // Both must outlive this.
  Arrivals(const Placement& placement, const Costs& costs) : placement_(placement), costs_(costs) {
    for (auto& roads : roads_) roads.resize(placement.worker_of.size());
  }

  // The action, next in micro-batch order on its stage, ends at `end`. Returns when its output is where it is needed.
  double add(const Action& action, double end);
  // An action that takes nothing from a cut finds its input as soon as its worker comes to it.
  std::optional<double> of(const Action& action) const;

 private:
  struct Road {
    std::vector<double> arrives;  // [i so far]
    double link_free = 0;         // of the link that leads here
  };

  Road& road(Direction direction, int stage) { return roads_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(stage)]; }

  const Placement& placement_;
  const Costs& costs_;
  std::array<std::vector<Road>, 2> roads_;  // by direction and the stage that it leads to, [n]
};

}  // namespace epipe::schedule
