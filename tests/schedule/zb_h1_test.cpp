#include <gtest/gtest.h>

#include <algorithm>

#include "epipe/schedule/generate.h"
#include "epipe/schedule/simulate.h"
#include "epipe/schedule/validate.h"
#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

constexpr int kLongChain = 8;
constexpr int kManyChunks = 20;

// Calls check(chain, m) for chains of up to 8 stages and up to 20 micro-batches.
template <typename Check>
void for_all_chains(Check&& check) {
  for (int n = 1; n <= kLongChain; ++n) {
    for (int m = 1; m <= kManyChunks; ++m) check(placements(n).front().placement, m);
  }
}

Costs costs_of(int stages, double forward, double input, double weights) {
  Costs costs = equal_costs(stages, forward, input + weights);
  costs.backward_input.assign(costs.backward.size(), input);
  costs.backward_weights.assign(costs.backward.size(), weights);
  return costs;
}

double makespan(std::string_view name, const Placement& chain, int m, const Costs& costs) {
  return simulate(generate(name, chain, m, costs).value(), costs).value().makespan;
}

TEST(ZbH1, RunsOnEveryChainWithQueuesOfOneFrame) {
  for_all_chains([](const Placement& chain, int m) {
    const auto result = validate(make("zb-h1", chain, m), 1);
    EXPECT_TRUE(result.ok()) << to_string(chain) << ", " << m << ": " << result.error().message;
  });
}

TEST(ZbH1, IsNeverSlowerThan1f1bWhereTheThreeKindsCostTheSame) {
  for_all_chains([](const Placement& chain, int m) {
    const Costs costs = costs_of(chain.stages(), 1, 1, 1);
    EXPECT_LE(makespan("zb-h1", chain, m, costs), makespan("1f1b", chain, m, costs)) << to_string(chain) << ", " << m;
  });
}

// Beyond the work of a stage, m (F + Bi + Bw).
TEST(ZbH1, HasTheBubbleOfThePaper) {
  for_all_chains([](const Placement& chain, int m) {
    const int n = chain.stages();
    if (m < n) return;
    EXPECT_EQ(makespan("zb-h1", chain, m, costs_of(n, 1, 1, 1)), 3 * m + (n - 1)) << to_string(chain) << ", " << m;
    EXPECT_EQ(makespan("1f1b", chain, m, costs_of(n, 1, 1, 1)), 3 * m + 3 * (n - 1)) << to_string(chain) << ", " << m;
  });
}

TEST(ZbH1, HoldsNoMoreAnywhereThanTheFirstStageOf1f1b) {
  for_all_chains([](const Placement& chain, int m) {
    const auto peak = [&](std::string_view name) {
      const auto live = simulate(make(name, chain, m), costs_of(chain.stages(), 1, 1, 1)).value().peak_live_of_stage;
      return *std::max_element(live.begin(), live.end());
    };
    EXPECT_LE(peak("zb-h1"), peak("1f1b")) << to_string(chain) << ", " << m;
  });
}

TEST(ZbH1, HasNoMoreMicroBatchesBetweenForwardAndInputGradientThan1f1b) {
  for_all_chains([](const Placement& chain, int m) {
    const auto schedule = make("zb-h1", chain, m);
    for (int j = 0; j < chain.stages(); ++j) {
      int in_flight = 0;
      for (const Action& a : schedule.per_worker[static_cast<std::size_t>(j)]) {
        if (a.kind == Kind::kForward) ++in_flight;
        if (a.kind == schedule.kind_of(Direction::kBackward, j)) --in_flight;
        EXPECT_LE(in_flight, std::min(m, chain.stages() - j)) << to_string(chain) << ", " << m << ", stage " << j;
      }
    }
  });
}

TEST(ZbH1, SplitsEveryBackwardButThoseOfTheFirstStage) {
  const auto schedule = make("zb-h1", "0,1,2", 4);
  EXPECT_EQ(schedule.split, (std::vector<bool>{false, true, true}));
  for (int j = 0; j < 3; ++j) {
    for (const Action& a : schedule.per_worker[static_cast<std::size_t>(j)]) {
      const auto kinds = schedule.kinds(j);
      EXPECT_NE(std::find(kinds.begin(), kinds.end(), a.kind), kinds.end()) << to_string(a);
    }
  }
}

TEST(ZbH1, IsRefusedWhereThePlacementIsNoChain) {
  for (const std::string placement : {"0,1,0", "0,0,1", "1,0", "0,0"}) {
    const auto schedule = generate("zb-h1", parse_placement(placement).value(), 4);
    ASSERT_FALSE(schedule) << placement;
    EXPECT_EQ(schedule.error().message, "the schedule zb-h1 is for chains, where stage j is on worker j, as in 0,1,2; the placement is " +
                                            placement + "; use 1f1b or gpipe");
  }
}

}  // namespace
}  // namespace epipe::schedule
