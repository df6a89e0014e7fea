#include "epipe/schedule/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "epipe/schedule/simulate.h"
#include "epipe/schedule/validate.h"
#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

std::string label(std::string_view name, const Placement& placement, int m) {
  return fmt::format("{} on {} with {} micro-batches", name, to_string(placement), m);
}

TEST(Generate, GivesSchedulesThatRunWithTheQueuesItNames) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    for (const std::string_view name : schedules_for(placement)) {
      const auto result = validate(make(name, placement, m), find_generator(name).value().queue_capacity);
      EXPECT_TRUE(result.ok()) << label(name, placement, m) << ": " << result.error().message;
    }
  });
}

TEST(Generate, NeedsRoomForOneFrameFor1f1bAnywhereAndForGpipeOnAChain) {
  EXPECT_EQ(find_generator("1f1b").value().queue_capacity, 1);
  for_all_sizes([](const std::string& shape, const Placement& placement, int m) {
    if (shape != "chain") return;
    EXPECT_TRUE(validate(make("gpipe", placement, m), 1)) << label("gpipe", placement, m);
  });
}

TEST(Generate, RunsOnEveryPlacementOfUpToFiveStages) {
  int seen = 0;
  for (int n = 1, codes = 5; n <= 5; ++n, codes *= 5) {
    for (int code = 0; code < codes; ++code) {  // its n digits of base 5 are the workers
      Placement placement;
      for (int j = 0, rest = code; j < n; ++j, rest /= 5) placement.worker_of.push_back(rest % 5);
      if (!check(placement)) continue;
      ++seen;
      for (const std::string_view name : schedules_for(placement)) {
        const auto result = validate(make(name, placement, 7), find_generator(name).value().queue_capacity);
        ASSERT_TRUE(result.ok()) << label(name, placement, 7) << ": " << result.error().message;
      }
    }
  }
  EXPECT_EQ(seen, 1 + 3 + 13 + 75 + 541);  // the ways to hand n stages to workers without gaps
}

TEST(Generate, RunsWhateverTheCosts) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    Costs costs = equal_costs(placement.stages(), 1, 2, 1.5);
    for (std::size_t j = 0; j < costs.forward.size(); ++j) {
      costs.forward[j] = j % 3 == 0 ? 0 : static_cast<double>(j) * 0.7;  // some stages cost nothing
      costs.backward[j] = j % 3 == 1 ? 0 : 1.1;
    }
    for (const std::string_view name : schedules_for(placement)) {
      const auto result = validate(generate(name, placement, m, costs).value(), find_generator(name).value().queue_capacity);
      EXPECT_TRUE(result.ok()) << label(name, placement, m) << ": " << result.error().message;
    }
  });
}

TEST(Generate, RunsWithAnyNumberInFlightAndHoldsNoMore) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    Costs far = equal_costs(placement.stages(), 1, 2, 0.5);
    far.delay.assign(far.transfer_forward.size(), 9);
    for (const std::string_view name : schedules_for(placement)) {
      for (const int in_flight : {1, 2, 5, m, kMaxChunks}) {
        const auto schedule = generate(name, placement, m, far, in_flight).value();
        const auto result = validate(schedule, queue_capacity(find_generator(name).value(), m, in_flight));
        EXPECT_TRUE(result.ok()) << label(name, placement, m) << ": " << result.error().message;
        const auto timeline = simulate(schedule, far).value();
        for (const int live : timeline.peak_live_of_stage) EXPECT_LE(live, in_flight) << label(name, placement, m);
      }
    }
  });
}

TEST(Generate, NeedsNoLargerQueuesThanItNames) {
  for (const Generator& generator : generators()) {
    EXPECT_EQ(queue_capacity(generator, 16, 0), generator.queue_capacity);
    EXPECT_EQ(queue_capacity(generator, 16, 7), 7);
    EXPECT_EQ(queue_capacity(generator, 16, 100), 16);
    EXPECT_EQ(queue_capacity(generator, 16, 1), generator.queue_capacity);
  }
}

TEST(Generate, KeepsLiveMicroBatchesOf1f1bBelowTheDistanceToTheEnd) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    const int n = placement.stages();
    const auto timeline = simulate(make("1f1b", placement, m), equal_costs(n, 1, 1)).value();
    for (int j = 0; j < n; ++j) {
      EXPECT_LE(timeline.peak_live_of_stage[static_cast<std::size_t>(j)], std::min(m, n - j))
          << label("1f1b", placement, m) << " stage " << j;
    }
  });
}

TEST(Generate, RunsEveryForwardOfAWorkerBeforeItsFirstBackwardInGpipe) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    for (const auto& list : make("gpipe", placement, m).per_worker) {
      EXPECT_TRUE(std::is_partitioned(list.begin(), list.end(), [](const Action& a) { return a.kind == Kind::kForward; }));
    }
  });
}

TEST(Generate, AlternatesForwardAndBackwardOnTheLastStageIn1f1b) {
  for_all_sizes([](const std::string&, const Placement& placement, int m) {
    const int last = placement.stages() - 1;
    int next = 0;  // F 0, B 0, F 1, B 1, ...
    for (const auto& list : make("1f1b", placement, m).per_worker) {
      for (const Action& a : list) {
        if (a.stage != last) continue;
        EXPECT_EQ(a, (Action{next % 2 == 0 ? Kind::kForward : Kind::kBackward, next / 2, last})) << label("1f1b", placement, m);
        ++next;
      }
    }
    EXPECT_EQ(next, 2 * m);
  });
}

// A bounded pipeline is no slower than gpipe, except on rings of five and six stages, where for some m the first worker waits up to two
// slots for a forward that the live limit held back.
TEST(Generate, Makes1f1bNoSlowerThanGpipe) {
  for_all_sizes([](const std::string& shape, const Placement& placement, int m) {
    const int n = placement.stages();
    const double allowed = shape == "ring" && n >= 5 ? 2 : 0;
    for (const double backward : {1.0, 2.0}) {
      const Costs costs = equal_costs(n, 1, backward);
      const double gpipe = simulate(make("gpipe", placement, m), costs).value().makespan;
      const double bounded = simulate(make("1f1b", placement, m), costs).value().makespan;
      EXPECT_LE(bounded, gpipe + allowed) << label("1f1b", placement, m) << ", backward " << backward;
    }
  });
}

TEST(Generate, KeepsAHeavyServerBusyWithoutKnowingTheCosts) {
  Costs costs = equal_costs(3, 1, 2, 1);  // client 1 and 2, transfers 1
  costs.forward[1] = 8;
  costs.backward[1] = 16;
  const auto placement = parse_placement("0,1,0").value();
  for (const std::string_view name : kBoth) {
    const double makespan = simulate(make(name, placement, 8), costs).value().makespan;
    EXPECT_LE(makespan, 1.03 * least_makespan(placement, 8, costs)) << name;
  }
}

TEST(Generate, HidesTransfersOnARingOfGpipe) {
  const auto placement = parse_placement("0,1,0").value();
  EXPECT_EQ(simulate(make("gpipe", placement, 8), equal_costs(3, 1, 2, 1)).value().makespan, 48);
}

TEST(Generate, OrdersARingBetterWhenItKnowsTheCosts) {
  const auto placement = parse_placement("0,1,0").value();
  const Costs costs = equal_costs(3, 1, 2, 1);
  const double fitted = simulate(generate("1f1b", placement, 8, costs).value(), costs).value().makespan;
  EXPECT_LT(fitted, 0.95 * simulate(make("1f1b", placement, 8), costs).value().makespan);
}

TEST(Generate, GivesTheSameScheduleEveryTime) {
  const auto placement = parse_placement("0,1,2,0").value();
  EXPECT_EQ(make("1f1b", placement, 9).per_worker, make("1f1b", placement, 9).per_worker);
}

TEST(Generate, RefusesNoMicroBatchesAndTooMany) {
  const auto placement = parse_placement("0,1").value();
  for (const int m : {0, -1, kMaxChunks + 1}) {
    const auto schedule = generate("gpipe", placement, m);
    ASSERT_FALSE(schedule);
    EXPECT_NE(schedule.error().message.find(fmt::format("from 1 to 4096, got {}", m)), std::string::npos) << schedule.error().message;
  }
}

TEST(Generate, RefusesTooManyInFlight) {
  const auto placement = parse_placement("0,1").value();
  for (const int in_flight : {-1, kMaxChunks + 1}) {
    const auto schedule = generate("1f1b", placement, 4, equal_costs(2, 1, 1), in_flight);
    ASSERT_FALSE(schedule);
    EXPECT_NE(schedule.error().message.find(fmt::format("from 1 to 4096, or 0 for the schedule's own limits, got {}", in_flight)),
              std::string::npos)
        << schedule.error().message;
  }
}

TEST(Generate, RefusesABadPlacementAndCostsThatDoNotFit) {
  EXPECT_FALSE(generate("gpipe", Placement{}, 2));
  EXPECT_FALSE(generate("gpipe", Placement{{1}}, 2));
  EXPECT_FALSE(generate("gpipe", Placement{{0, 1}}, 2, equal_costs(3, 1, 1)));
}

TEST(Generators, AreFoundByName) {
  for (const Generator& generator : generators()) EXPECT_EQ(find_generator(generator.name).value().name, generator.name);
  const auto unknown = find_generator("zig-zag");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown schedule \"zig-zag\"; known are gpipe, 1f1b, zb-h1");
}

TEST(Generators, AreNamedAndExplainedInTheHelp) {
  ASSERT_EQ(schedule_names().size(), generators().size());
  for (const Generator& generator : generators()) {
    EXPECT_NE(schedule_help().find(fmt::format("{}: {}", generator.name, generator.help)), std::string::npos) << schedule_help();
  }
}

}  // namespace
}  // namespace epipe::schedule
