#pragma once

#include <vector>

#include "epipe/planner/price.h"

namespace epipe::planner {

// Codecs that a cut and direction may have, as indices of Inputs::codecs, from the fewest bits to the most; empty: the one that it has.
struct AllowedCodecs {
  std::vector<std::size_t> forward{};
  std::vector<std::size_t> backward{};

  const std::vector<std::size_t>& of(schedule::Direction direction) const {
    return direction == schedule::Direction::kForward ? forward : backward;
  }
};

// The most bits that cost next to no time, with cuts, placement, schedule and chunks as they are. The step is fastest where every cut and
// direction has the fewest bits. From there bits are given back, to the ones that have fewest first, as long as the step takes no more
// than this share longer:
//
//   slow link, which binds      ec:2 ec:2 ec:2 ec:2     any more bits would show
//   fast up, slow down          ec:8 ec:2 ec:2 ec:8     forward at cut 0 and backward at cut 1 go up
//   fast link                   ec:8 ec:8 ec:8 ec:8
Priced choose_rates(const Inputs& inputs, Choice choice, const std::vector<AllowedCodecs>& allowed, double as_good = 0.02);

}  // namespace epipe::planner
