#include "epipe/schedule/in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "epipe/schedule/simulate.h"
#include "epipe/schedule/validate.h"
#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

InFlight chosen(const InFlightQuestion& question) { return choose_in_flight(question).value(); }

double makespan_with(std::string_view name, const Placement& placement, int m, const Costs& costs, int in_flight) {
  return simulate(generate(name, placement, m, costs, in_flight).value(), costs).value().makespan;
}

// A client with the first and last layers, a server with the rest, `delay` apart: what a server does takes about 100 ms.
Costs split_learning(double delay) { return {{.004, .035, .001}, {.008, .07, .002}, {.002, .001}, {.002, .001}, {}, {}, {delay, delay}}; }

const Placement kClientServer{{0, 1, 0}};

TEST(InFlight, IsTheFewestWithinAPercentOfTheBest) {
  for (const std::string_view name : kBoth) {
    const Costs costs = split_learning(0.1);
    const InFlight found = chosen({name, kClientServer, 16, costs});
    double best = found.makespan;
    for (int k = 1; k <= 16; ++k) best = std::min(best, makespan_with(name, kClientServer, 16, costs, k));
    EXPECT_LE(found.makespan, 1.01 * best) << name;
    EXPECT_EQ(found.makespan, makespan_with(name, kClientServer, 16, costs, found.in_flight)) << name;
    for (int k = 1; k < found.in_flight; ++k) EXPECT_GT(makespan_with(name, kClientServer, 16, costs, k), 1.01 * best) << name << " " << k;
  }
}

TEST(InFlight, HidesAllOfADelayButOneWayThereAndOneBack) {
  for (const std::string_view name : kBoth) {
    const double near = chosen({name, kClientServer, 16, split_learning(0)}).makespan;
    for (const double delay : {0.01, 0.05, 0.1}) {
      const double far = chosen({name, kClientServer, 16, split_learning(delay)}).makespan;
      EXPECT_LE(far, 1.005 * (near + 2 * delay)) << name << " " << delay;
    }
    EXPECT_GT(makespan_with(name, kClientServer, 16, split_learning(0.1), 0), 1.2 * (near + 0.2)) << name << ": its own limits starve it";
  }
}

// A server that has more to do forward than two ways take hides them, whatever the other times.
TEST(InFlight, KeepsAFarServerBusyWhateverTheTimes) {
  std::mt19937 generator(7);
  const auto draw = [&](double most) { return std::uniform_real_distribution<double>(0, most)(generator); };
  for (int trial = 0; trial < 200; ++trial) {
    const int m = 16 + static_cast<int>(generator() % 32);
    Costs costs{{draw(0.3), 1, draw(0.3)}, {draw(0.3), 1 + draw(2), draw(0.3)}, {}, {}, {}, {}, {}};
    costs.transfer_forward = {draw(0.4), draw(0.4)};
    costs.transfer_backward = {draw(0.4), draw(0.4)};
    const double near = least_makespan(kClientServer, m, costs);
    const double delay = draw(0.4 * m);
    costs.delay = {delay, delay};
    const InFlight found = chosen({"1f1b", kClientServer, m, costs});
    EXPECT_LE(found.makespan, (near + 2 * delay) / 0.95) << m << " micro-batches, delay " << delay;
  }
}

TEST(InFlight, GivesSchedulesThatAreValidAndNearTheBoundOnEveryPlacement) {
  std::mt19937 generator(8);
  for_all_sizes([&](const std::string& shape, const Placement& placement, int m) {
    Costs costs = equal_costs(placement.stages(), 1, 2, 0.1);
    costs.delay.assign(costs.transfer_forward.size(), static_cast<double>(generator() % 8));
    for (const std::string_view name : schedules_for(placement)) {
      const int k = chosen({name, placement, m, costs}).in_flight;
      const auto schedule = generate(name, placement, m, costs, k).value();
      EXPECT_TRUE(validate(schedule, queue_capacity(find_generator(name).value(), m, k))) << name << " " << shape << " " << m;
      const double makespan = simulate(schedule, costs).value().makespan;
      if (name != "1f1b") continue;
      EXPECT_LE(makespan, 1.35 * least_makespan(placement, m, costs)) << shape << " " << placement.stages() << " " << m;
    }
  });
}

TEST(InFlight, GrowsWithTheDelay) {
  int before = 0;
  for (const double delay : {0.0, 0.02, 0.05, 0.1, 0.2}) {
    const int k = chosen({"1f1b", kClientServer, 64, split_learning(delay)}).in_flight;
    EXPECT_GE(k, before) << delay;
    before = k;
  }
  EXPECT_GE(before, 10);
}

TEST(InFlight, StaysWithinTheMemoryOfEachWorkerAndGetsSlowerWithLess) {
  const Costs costs = split_learning(0.1);
  double before = 0;
  for (int most = 16; most >= 1; --most) {
    const InFlight found = chosen({"1f1b", kClientServer, 16, costs, {32, most}});
    EXPECT_LE(found.live_of_worker[1], most);
    EXPECT_GE(1.01 * found.makespan, before) << most;
    before = std::max(before, found.makespan);
  }
  EXPECT_EQ(chosen({"1f1b", kClientServer, 16, costs, {32, 1}}).in_flight, 1);
}

TEST(InFlight, RefusesAMemoryThatHoldsNotEvenOne) {
  const auto none = choose_in_flight({"1f1b", kClientServer, 16, split_learning(0), {1, 1}});  // worker 0 has two stages
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("1,1 live micro-batches by worker"), std::string::npos) << none.error().message;
  EXPECT_FALSE(choose_in_flight({"1f1b", kClientServer, 16, split_learning(0), {1}}));
  EXPECT_FALSE(choose_in_flight({"1f1b", kClientServer, 0, split_learning(0)}));
  EXPECT_FALSE(choose_in_flight({"none", kClientServer, 4, split_learning(0)}));
}

TEST(InFlight, IsPricedWithCodecsAndSharedCoresWhereTheyAreKnown) {
  const Costs costs = split_learning(0.1);
  Resources one_core = no_resources(kClientServer);
  one_core.machine_of = {0, 0};
  one_core.cores = {1};
  const InFlight found = chosen({"1f1b", kClientServer, 16, costs, {}, &one_core});
  EXPECT_GT(found.makespan, chosen({"1f1b", kClientServer, 16, costs}).makespan);
}

// The workers of a machine that had other work to do while it was measured.
Costs faster(Costs costs, double factor) {
  for (auto* const actions : {&costs.forward, &costs.backward}) {
    for (double& seconds : *actions) seconds *= factor;
  }
  return costs;
}

TEST(InFlight, KeepsAFarServerBusyWhereActionsTakeLessThanItsOrderWasMadeFor) {
  for (const std::string_view name : kBoth) {
    for (const int m : {16, 32}) {
      const Costs costs = split_learning(0.15);
      const Costs fast = faster(costs, 0.65);
      const double near = least_makespan(kClientServer, m, faster(split_learning(0), 0.65));
      const auto seconds = [&](const InFlight& found) {
        return simulate(generate(name, kClientServer, m, costs, found.in_flight).value(), fast).value().makespan;
      };
      EXPECT_GT(seconds(chosen({name, kClientServer, m, costs})), 1.1 * (near + 0.3)) << name << " " << m << ": the test must test something";
      EXPECT_LE(seconds(chosen({name, kClientServer, m, costs, {}, nullptr, {fast}})), 1.05 * (near + 0.3)) << name << " " << m;
    }
  }
}

// The contract in other words: no number misses what is good by less, and no smaller one by as much.
TEST(InFlight, IsGoodUnderAllCostsOrWorstByLeast) {
  std::mt19937 generator(9);
  const auto draw = [&](double most) { return std::uniform_real_distribution<double>(0.01, most)(generator); };
  for (int trial = 0; trial < 50; ++trial) {
    const int m = 2 + static_cast<int>(generator() % 12);
    std::vector<Costs> all;
    for (int c = 0; c < 3; ++c) {
      all.push_back({{draw(1), draw(2), draw(1)}, {draw(1), draw(3), draw(1)}, {draw(1), draw(1)}, {draw(1), draw(1)}, {}, {}, {}});
      all.back().delay = {draw(6), draw(6)};
    }
    std::vector<std::vector<double>> makespans;  // [k - 1][c]
    std::vector<double> best(3, 1e9);
    for (int k = 1; k <= m; ++k) {
      const Schedule order = generate("1f1b", kClientServer, m, all[0], k).value();
      auto& of_k = makespans.emplace_back();
      for (std::size_t c = 0; c < 3; ++c) {
        of_k.push_back(simulate(order, all[c]).value().makespan);
        best[c] = std::min(best[c], of_k[c]);
      }
    }
    const auto miss = [&](int k) {
      double most = 1;
      for (std::size_t c = 0; c < 3; ++c) {
        most = std::max(most, makespans[static_cast<std::size_t>(k - 1)][c] / (best[c] * (c == 0 ? 1.01 : 1.03)));
      }
      return most;
    };
    const int found = chosen({"1f1b", kClientServer, m, all[0], {}, nullptr, {all[1], all[2]}}).in_flight;
    for (int k = 1; k <= m; ++k) EXPECT_TRUE(k < found ? miss(k) > miss(found) : miss(k) >= miss(found)) << k << " instead of " << found;
  }
}

TEST(InFlight, IsFoundAmongThousandsOfMicroBatches) {
  const InFlight found = chosen({"1f1b", kClientServer, kMaxChunks, split_learning(0.1)});
  EXPECT_LT(found.in_flight, 64);
  EXPECT_LE(found.makespan, 1.02 * least_makespan(kClientServer, kMaxChunks, split_learning(0.1)));
}

}  // namespace
}  // namespace epipe::schedule
