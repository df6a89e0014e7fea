#include "epipe/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

Timeline simulated(const Schedule& schedule, const Costs& costs) { return simulate(schedule, costs).value(); }

TEST(Simulate, GpipeOnAChainTakesOneForwardAndBackwardPerMicroBatchAndStageLessOne) {
  for (int n = 1; n <= kStages; ++n) {
    for (int m = 1; m <= kChunks; ++m) {
      const auto schedule = make("gpipe", placements(n).front().placement, m);
      const auto timeline = simulated(schedule, equal_costs(n, 1, 2));
      EXPECT_EQ(timeline.makespan, (m + n - 1) * 3) << n << " stages, " << m << " micro-batches";
      EXPECT_NEAR(timeline.bubble, (n - 1.0) / (m + n - 1), 1e-12);
    }
  }
}

TEST(Simulate, BubbleIsTheIdlePartOfEachWorkerAndTheirMean) {
  // 0  F0 F1 .  .  .  .  .  .  B0 B1
  // 1  .  F0 F0 F0 F1 F1 F1 B0 B1 .
  const auto schedule = make("gpipe", "0,1", 2);
  Costs costs = equal_costs(2, 1, 1);
  costs.forward[1] = 3;
  const auto timeline = simulated(schedule, costs);
  EXPECT_EQ(timeline.makespan, 10);
  EXPECT_DOUBLE_EQ(timeline.bubble_of_worker[0], 0.6);
  EXPECT_DOUBLE_EQ(timeline.bubble_of_worker[1], 0.2);
  EXPECT_DOUBLE_EQ(timeline.bubble, 0.4);
}

TEST(Simulate, GivesEveryActionItsStartAndEnd) {
  const auto schedule = make("1f1b", "0,1", 1);
  const auto timeline = simulated(schedule, equal_costs(2, 1, 2, 0.5));
  ASSERT_EQ(timeline.per_worker[0].size(), 2U);
  EXPECT_EQ(timeline.per_worker[0][0].start, 0);    // F 0 0
  EXPECT_EQ(timeline.per_worker[1][0].start, 1.5);  // F 0 1, after a transfer
  EXPECT_EQ(timeline.per_worker[1][1].start, 2.5);  // B 0 1, at once
  EXPECT_EQ(timeline.per_worker[1][1].end, 4.5);
  EXPECT_EQ(timeline.per_worker[0][1].start, 5);  // B 0 0, after a transfer back
  EXPECT_EQ(timeline.makespan, 7);
}

TEST(Simulate, TransfersOfOneDirectionFollowEachOtherAndOverlapWithComputing) {
  // Frames leave worker 0 at 1, 2, 3 and a transfer takes 4: they arrive at 5, 9, 13.
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_forward = {4};
  const auto timeline = simulated(make("gpipe", "0,1", 3), costs);
  EXPECT_EQ(timeline.per_worker[0][2].end, 3);
  EXPECT_EQ(timeline.per_worker[1][0].start, 5);
  EXPECT_EQ(timeline.per_worker[1][1].start, 9);
  EXPECT_EQ(timeline.per_worker[1][2].start, 13);
}

TEST(Simulate, ADelayHoldsFramesUpButNotTheLink) {
  // Frames leave worker 0 at 1, 2, 3, a transfer takes 1 and the way 10: they arrive at 12, 13, 14.
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_forward = {1};
  costs.delay = {10};
  const auto timeline = simulated(make("gpipe", "0,1", 3), costs);
  EXPECT_EQ(timeline.per_worker[1][0].start, 12);
  EXPECT_EQ(timeline.per_worker[1][1].start, 13);
  EXPECT_EQ(timeline.per_worker[1][2].start, 14);
  EXPECT_EQ(timeline.per_worker[1][3].end, 16);
  EXPECT_EQ(timeline.per_worker[0][3].start, 26);  // and as long on the way back
}

TEST(Simulate, WhatTwoCutsSendToTheSameWorkerSharesOneLinkAndTheWayBackIsAnother) {
  // Worker 1 sends at cut 1 forward and at cut 0 backward, both to worker 0: eight frames of 4.
  Costs costs = equal_costs(3, 0, 0);
  costs.transfer_forward = {0, 4};
  costs.transfer_backward = {4, 0};
  EXPECT_EQ(simulated(make("1f1b", "0,1,0", 4), costs).makespan, 32);
  costs.transfer_forward = {4, 0};  // from worker 0, beside the gradients of cut 0
  EXPECT_LT(simulated(make("1f1b", "0,1,0", 4), costs).makespan, 32);
}

TEST(Simulate, ChargesNoTransferWithinAWorker) {
  const auto timeline = simulated(make("1f1b", "0,0", 3), equal_costs(2, 1, 2, 100));
  EXPECT_EQ(timeline.makespan, 18);
  EXPECT_EQ(timeline.bubble, 0);
}

TEST(Simulate, CountsLiveMicroBatchesPerStageAndOverAllStagesOfAWorker) {
  const auto gpipe = simulated(make("gpipe", "0,1,0", 5), equal_costs(3, 1, 2));
  EXPECT_EQ(gpipe.peak_live_of_stage, (std::vector<int>{5, 5, 5}));
  EXPECT_EQ(gpipe.peak_live_of_worker, (std::vector<int>{10, 5}));
  const auto one_each = simulated(make("1f1b", "0,1,0", 5), equal_costs(3, 1, 2));
  EXPECT_EQ(one_each.peak_live_of_stage, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(one_each.peak_live_of_worker, (std::vector<int>{4, 2}));
}

TEST(Simulate, GivesEachPartOfASplitBackwardItsOwnCost) {
  const auto schedule = make("zb-h1", "0,1", 1);
  Costs costs = equal_costs(2, 1, 10, 0.5);
  costs.backward_input = {0, 2};
  costs.backward_weights = {0, 3};
  const auto timeline = simulated(schedule, costs);
  EXPECT_EQ(timeline.per_worker[1][1].start, 2.5);  // Bi 0 1, after F 0 1
  EXPECT_EQ(timeline.per_worker[1][2].start, 4.5);  // Bw 0 1, after its Bi
  EXPECT_EQ(timeline.per_worker[1][2].end, 7.5);
  EXPECT_EQ(timeline.per_worker[0][1].start, 5);  // B 0 0, whole, does not wait for it
  EXPECT_EQ(timeline.makespan, 15);
}

TEST(Simulate, TakesHalfAWholeBackwardForEachPartWhereNothingElseIsGiven) {
  const Costs costs = equal_costs(2, 1, 3);
  EXPECT_EQ(costs.of(Kind::kBackwardInput, 1), 1.5);
  EXPECT_EQ(costs.of(Kind::kBackwardWeights, 1), 1.5);
}

TEST(Simulate, HoldsAMicroBatchUntilTheGradientsOfItsWeights) {
  auto schedule = make("zb-h1", "0,1", 3);
  EXPECT_EQ(simulated(schedule, equal_costs(2, 1, 2)).peak_live_of_stage, (std::vector<int>{2, 2}));
  schedule.live_limit[1] = 3;
  auto& list = schedule.per_worker[1];
  std::stable_partition(list.begin(), list.end(), [](const Action& a) { return a.kind != Kind::kBackwardWeights; });
  EXPECT_EQ(simulated(schedule, equal_costs(2, 1, 2)).peak_live_of_stage, (std::vector<int>{2, 3}));
}

TEST(Simulate, RefusesCostsThatDoNotFitTheStages) {
  const auto schedule = make("gpipe", "0,1", 2);
  const auto message = [&](const Costs& costs) { return simulate(schedule, costs).error().message; };
  EXPECT_NE(message(equal_costs(3, 1, 1)).find("expected 2 forward costs"), std::string::npos);
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_backward.clear();
  EXPECT_NE(message(costs).find("expected 1 backward transfer costs"), std::string::npos);
  costs = equal_costs(2, 1, -1);
  EXPECT_NE(message(costs).find("at least 0, got -1"), std::string::npos);
  costs = equal_costs(2, 1, 1);
  costs.delay = {1, 1};
  EXPECT_NE(message(costs).find("expected 1 delay costs"), std::string::npos);
  costs.delay = {std::numeric_limits<double>::infinity()};
  EXPECT_NE(message(costs).find("a delay cost must be a number of at least 0"), std::string::npos);
  costs = equal_costs(2, 1, 1);
  costs.backward_input = {1, 1};
  EXPECT_NE(message(costs).find("expected 2 backward weights costs"), std::string::npos);
}

TEST(Simulate, RefusesAScheduleThatCannotRun) {
  auto schedule = make("gpipe", "0,1", 2);
  schedule.per_worker[1].pop_back();
  EXPECT_FALSE(simulate(schedule, equal_costs(2, 1, 1)));
}

TEST(LeastMakespan, IsReachedByBothSchedulesOnAChainOfEqualStages) {
  for (int n = 1; n <= kStages; ++n) {
    for (const std::string_view name : kBoth) {
      const Costs costs = equal_costs(n, 1, 2);
      const auto schedule = make(name, placements(n).front().placement, 8);
      EXPECT_EQ(simulated(schedule, costs).makespan, least_makespan(schedule.placement, 8, costs)) << name << " " << n;
    }
  }
}

TEST(LeastMakespan, IsNeverUndercut) {
  for_all_sizes([](const std::string& shape, const Placement& placement, int m) {
    const int n = placement.stages();
    Costs uneven = equal_costs(n, 1, 2, 0.5);
    for (std::size_t j = 0; j < uneven.forward.size(); j += 2) uneven.forward[j] = 3.5;
    uneven.backward.back() = 0.25;
    Costs far = uneven;
    far.delay.assign(far.transfer_forward.size(), 7);
    for (const Costs& costs : {equal_costs(n, 1, 1), equal_costs(n, 1, 2, 5), uneven, far}) {
      for (const std::string_view name : kBoth) {
        for (const int in_flight : {0, m}) {
          const double makespan = simulated(generate(name, placement, m, costs, in_flight).value(), costs).makespan;
          EXPECT_GE(makespan, least_makespan(placement, m, costs) - 1e-9) << name << " " << shape << " " << n << " " << m;
        }
      }
    }
  });
}

TEST(LeastMakespan, IsNeverUndercutBySplitBackwards) {
  for (int n = 1; n <= kStages; ++n) {
    const Placement chain = placements(n).front().placement;
    Costs uneven = equal_costs(n, 1, 2, 0.5);
    for (std::size_t j = 0; j < uneven.forward.size(); j += 2) uneven.backward[j] = 3.5;
    Costs dear = equal_costs(n, 1, 2, 5);  // the parts cost more than the whole
    dear.backward_input.assign(dear.backward.size(), 1.25);
    dear.backward_weights.assign(dear.backward.size(), 1.5);
    for (const Costs& costs : {equal_costs(n, 1, 2), uneven, dear}) {
      for (int m = 1; m <= kChunks; ++m) {
        const double makespan = simulated(generate("zb-h1", chain, m, costs).value(), costs).makespan;
        EXPECT_GE(makespan, least_makespan(chain, m, costs, true) - 1e-9) << n << " " << m;
      }
    }
  }
}

TEST(LeastMakespan, IsReachedByZbH1ButForItsBubble) {
  const Placement chain = parse_placement("0,1,2").value();
  const Costs costs = equal_costs(3, 1, 2);
  EXPECT_EQ(least_makespan(chain, 8, costs, true), 8 * 3 + 2);
  EXPECT_EQ(simulated(make("zb-h1", chain, 8), costs).makespan, 8 * 3 + 2);
}

TEST(LeastMakespan, CountsTheSlowestLink) {
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_backward = {10};
  // One micro-batch takes 14; three wait for each other on the way back.
  EXPECT_EQ(least_makespan(parse_placement("0,1").value(), 3, costs), 34);
}

TEST(LeastMakespan, CountsThatALinkWaitsForNothingBetweenTwoUses) {
  // Worker 0's link carries cut 0 forward and cut 1 backward: it starts after F 0 0 and ends before B 0 1.
  Costs costs = equal_costs(3, 1, 2);
  costs.transfer_forward = {5, 0};
  costs.transfer_backward = {0, 6};
  EXPECT_EQ(least_makespan(parse_placement("0,1,0").value(), 10, costs), 1 + 10 * 11 + 4);
}

TEST(LeastMakespan, CountsThatABackwardWaitsForTheLongestRoad) {
  // Worker 1 runs both backwards after the first one has come back from worker 0.
  Costs costs = equal_costs(3, 1, 2);
  costs.forward[2] = costs.backward[2] = 0;
  costs.delay = {100, 100};
  EXPECT_EQ(least_makespan(parse_placement("0,1,0").value(), 2, costs), 400 + 1 + 1 + 2 * 2 + 2);
}

TEST(LeastMakespan, BoundsTheSpeedUpByTheBusiestWorker) {
  const Costs costs = equal_costs(3, 1, 2);
  // Worker 0 of the ring runs two of three stages: however many micro-batches, at most 1.5 times one worker.
  EXPECT_DOUBLE_EQ(serial_time(1000, costs) / least_makespan(parse_placement("0,1,0").value(), 1000, costs), 1.5);
}

}  // namespace
}  // namespace epipe::schedule
