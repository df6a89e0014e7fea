#include "epipe/schedule/resources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "epipe/schedule/simulate.h"
#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

constexpr double kRounding = 1e-9;

Timeline run_with(const Schedule& schedule, const Costs& costs, const Resources& resources) {
  return simulate(schedule, costs, resources).value();
}

// The client/server ring with everything on one machine.
Resources one_machine(const Placement& placement, double cores) {
  Resources shared = no_resources(placement);
  std::fill(shared.machine_of.begin(), shared.machine_of.end(), 0);
  shared.cores = {cores};
  return shared;
}

std::vector<double> random_values(std::mt19937& generator, std::size_t count, double most) {
  std::uniform_real_distribution<double> value(0, most);
  std::vector<double> values(count);
  for (double& v : values) v = value(generator);
  return values;
}

Costs random_costs(std::mt19937& generator, int stages) {
  const auto n = static_cast<std::size_t>(stages);
  return {random_values(generator, n, 3),     random_values(generator, n, 3), random_values(generator, n - 1, 4),
          random_values(generator, n - 1, 4), random_values(generator, n, 2), random_values(generator, n, 2),
          random_values(generator, n - 1, 3)};
}

Resources random_resources(std::mt19937& generator, const Placement& placement) {
  const auto cuts = placement.worker_of.size() - 1;
  Resources r = one_machine(placement, 1 + static_cast<double>(generator() % 3));
  for (PerCut* const values : {&r.encode, &r.decode, &r.carry_out, &r.carry_in}) {
    *values = {random_values(generator, cuts, 1), random_values(generator, cuts, 1)};
  }
  r.latency = random_values(generator, 1, 1)[0];
  return r;
}

// Both count what several cuts send between two workers on one link. Frames of equal times may take it in another order, so the times
// are random.
TEST(SharedSimulation, EqualsTheSimpleOneWhereCodecsAreFree) {
  std::mt19937 generator(1);
  for_all_sizes([&](const std::string& shape, const Placement& placement, int m) {
    const Costs costs = random_costs(generator, placement.stages());
    for (const std::string_view name : schedules_for(placement)) {
      for (const int in_flight : {0, 1, 4}) {
        const auto schedule = generate(name, placement, m, costs, in_flight).value();
        const auto simple = simulate(schedule, costs).value();
        const auto shared = run_with(schedule, costs, no_resources(placement));
        EXPECT_EQ(shared.peak_live_of_worker, simple.peak_live_of_worker);
        for (std::size_t w = 0; w < simple.per_worker.size(); ++w) {
          for (std::size_t a = 0; a < simple.per_worker[w].size(); ++a) {
            ASSERT_NEAR(shared.per_worker[w][a].start, simple.per_worker[w][a].start, kRounding) << name << " " << shape << " " << m;
            ASSERT_NEAR(shared.per_worker[w][a].end, simple.per_worker[w][a].end, kRounding) << name << " " << shape << " " << m;
          }
        }
      }
    }
  });
}

// Everything that one link, one machine or one micro-batch on its way must do takes its time, whatever the order.
double lower_bound(const Placement& placement, int m, const Costs& costs, const Resources& r) {
  double work = serial_time(1, costs);  // on the one machine, for a micro-batch
  double road = work;
  std::map<std::pair<int, int>, double> links;
  for (int cut = 0; cut + 1 < placement.stages(); ++cut) {
    if (!placement.crosses(cut)) continue;
    const int before = placement.worker_of[static_cast<std::size_t>(cut)];
    const int after = placement.worker_of[static_cast<std::size_t>(cut) + 1];
    links[{before, after}] += costs.transfer(Direction::kForward, cut);
    links[{after, before}] += costs.transfer(Direction::kBackward, cut);
    for (const Direction direction : kDirections) {
      const double codec = r.encode.at(direction, cut) + r.decode.at(direction, cut);
      work += codec + r.carry_out.at(direction, cut) + r.carry_in.at(direction, cut);
      const double carried = std::max({costs.transfer(direction, cut), r.carry_out.at(direction, cut), r.carry_in.at(direction, cut)});
      road += codec + r.latency + costs.delay_of(cut) + carried;
    }
  }
  double least = std::max(road, m * work / r.cores[0]);
  for (const auto& [workers, seconds] : links) least = std::max(least, m * seconds);
  return least;
}

TEST(SharedSimulation, IsNeverBelowWhatAnyLinkOrTheMachineOrOneMicroBatchNeeds) {
  std::mt19937 generator(3);
  for_all_sizes([&](const std::string& shape, const Placement& placement, int m) {
    const Costs costs = random_costs(generator, placement.stages());
    const Resources resources = random_resources(generator, placement);
    for (const std::string_view name : kBoth) {
      const double makespan = run_with(make(name, placement, m), costs, resources).makespan;
      EXPECT_GE(makespan, lower_bound(placement, m, costs, resources) - kRounding) << name << " " << shape << " " << m;
      Costs computing = costs;
      std::fill(computing.transfer_forward.begin(), computing.transfer_forward.end(), 0);
      std::fill(computing.transfer_backward.begin(), computing.transfer_backward.end(), 0);
      EXPECT_GE(makespan, least_makespan(placement, m, computing) - kRounding);
    }
  });
}

TEST(SharedSimulation, OneCoreDoesAllWorkOneAfterTheOther) {
  const Placement ring = parse_placement("0,1,0").value();
  const auto timeline = run_with(make("gpipe", ring, 5), equal_costs(3, 1, 2), one_machine(ring, 1));
  EXPECT_NEAR(timeline.makespan, 5 * 9, kRounding);
}

TEST(SharedSimulation, WhatTwoCutsSendTheSameWayFollowsEachOther) {
  // Worker 0 sends micro-batch 0 at cut 0 from 0 to 10; its other frames, at cut 2, wait for nothing but that link.
  const Placement zigzag = parse_placement("0,1,0,1").value();
  Costs costs = equal_costs(4, 0, 0);
  costs.transfer_forward = {10, 1, 10};
  const auto timeline = run_with(make("gpipe", zigzag, 2), costs, no_resources(zigzag));
  EXPECT_NEAR(timeline.makespan, 40, kRounding);  // four frames of 10
  EXPECT_EQ(simulate(make("gpipe", zigzag, 2), costs).value().makespan, 40);
}

TEST(SharedSimulation, AFramePassesEncoderLinkLatencyAndDecoderInTurn) {
  const Placement pair = parse_placement("0,1").value();
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_forward = {4};
  Resources r = no_resources(pair);
  r.encode.forward = {2};
  r.decode.forward = {3};
  r.latency = 0.25;
  costs.delay = {0.25};
  const auto timeline = run_with(make("gpipe", pair, 2), costs, r);
  EXPECT_NEAR(timeline.per_worker[1][0].start, 1 + 2 + 4 + 0.5 + 3, kRounding);
  EXPECT_NEAR(timeline.per_worker[1][1].start, 1 + 2 + 8 + 0.5 + 3, kRounding);  // the second waits for the link
}

TEST(SharedSimulation, TheEndsOfALinkWorkBesideTheTransferAndCountWhereTheyAreSlower) {
  const Placement pair = parse_placement("0,1").value();
  Costs costs = equal_costs(2, 1, 1);
  costs.transfer_forward = {4};
  Resources r = no_resources(pair);
  r.carry_out.forward = r.carry_in.forward = {3};
  EXPECT_NEAR(run_with(make("gpipe", pair, 1), costs, r).per_worker[1][0].start, 5, kRounding);
  r.carry_out.forward = {6};
  EXPECT_NEAR(run_with(make("gpipe", pair, 1), costs, r).per_worker[1][0].start, 7, kRounding);
  r.carry_in.forward = {8};
  EXPECT_NEAR(run_with(make("gpipe", pair, 1), costs, r).per_worker[1][0].start, 9, kRounding);
}

TEST(SharedSimulation, RefusesResourcesThatDoNotFit) {
  const auto schedule = make("gpipe", "0,1", 2);
  const auto message = [&](const Resources& r) { return simulate(schedule, equal_costs(2, 1, 1), r).error().message; };
  Resources r = no_resources(schedule.placement);
  r.encode.backward = {1, 2};
  EXPECT_NE(message(r).find("expected 1 encode costs"), std::string::npos);
  r = no_resources(schedule.placement);
  r.latency = -1;
  EXPECT_NE(message(r).find("latency"), std::string::npos);
  r = no_resources(schedule.placement);
  r.machine_of = {0};
  EXPECT_NE(message(r).find("machines of 2 workers, got 1"), std::string::npos);
  r.machine_of = {0, 2};
  EXPECT_NE(message(r).find("machine 2 has no number of cores"), std::string::npos);
  r.machine_of = {0, 1};
  r.cores = {1, 0};
  EXPECT_NE(message(r).find("more than 0 cores"), std::string::npos);
  r.cores = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_NE(message(r).find("more than 0 cores"), std::string::npos);
}

}  // namespace
}  // namespace epipe::schedule
