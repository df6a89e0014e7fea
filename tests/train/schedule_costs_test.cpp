#include "epipe/train/schedule_costs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "epipe/schedule/in_flight.h"
#include "epipe/schedule/simulate.h"
#include "epipe/train/probe.h"

namespace epipe::train {
namespace {

const std::string kRing =
    "forward=0.004,0.035,0.001;backward=0.008,0.07,0.002;transfer-forward=0.002,0.001;transfer-backward=0.002,0.001;delay=0.1,0.1";

Plan ring_plan() {
  Plan plan;
  plan.place = {0, 1, 0};
  plan.chunks = 16;
  plan.schedule = "1f1b";
  plan.cuts = {1, 3};
  plan.codecs = {{"none", "none"}, {"none", "none"}};
  plan.data.classes = 10;
  plan.data.shape = {3, 8, 8};
  plan.costs = parse_costs(kRing, 3);
  return plan;
}

std::string complaint(const std::string& text, int stages = 3) {
  try {
    parse_costs(text, stages);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleCosts, SurviveTheirText) {
  EXPECT_EQ(costs_text(parse_costs(kRing, 3)), kRing);
  EXPECT_EQ(costs_text(parse_costs("", 3)), "");
}

TEST(ScheduleCosts, AreRoundedSoThatTheTextIsAllThereIs) {
  schedule::Costs costs = schedule::equal_costs(2, 0.123456, 1.0 / 3);
  const std::string text = costs_text(costs);
  EXPECT_EQ(text, "forward=0.123,0.123;backward=0.333,0.333;transfer-forward=0;transfer-backward=0");
  EXPECT_EQ(costs_text(parse_costs(text, 2)), text);
}

TEST(ScheduleCosts, RefuseWhatIsNoTimeOrDoesNotFit) {
  for (const std::string bad : {"forward=1,2,-1", "forward=nan,1,1", "forward=inf,1,1", "forward=1e9,1,1", "sideways=1", "forward=1,,1",
                                "forward=0x", "forward", ";", "forward=1 2"}) {
    EXPECT_NE(complaint(bad), "") << bad;
  }
  EXPECT_NE(complaint(kRing, 4).find("expected 4 forward costs"), std::string::npos) << complaint(kRing, 4);
  EXPECT_NE(complaint(std::string(100'000, '1')), "");
}

TEST(InFlightSetting, IsANumberOrFollowsFromTheCosts) {
  const Plan plan = ring_plan();
  EXPECT_EQ(resolve_in_flight("", plan), 0);
  EXPECT_EQ(resolve_in_flight("5", plan), 5);
  EXPECT_EQ(resolve_in_flight("auto", plan), 15) << "7 if actions never took less";
  Plan near = plan;
  near.costs = {};
  EXPECT_EQ(resolve_in_flight("auto", near), 0) << "nothing was measured";
  for (const std::string bad : {"0", "-1", "5x", "4097", "Auto"}) EXPECT_THROW(resolve_in_flight(bad, plan), std::invalid_argument) << bad;
}

// As a run is: ordered for late frames, before it is known what its actions take.
TEST(InFlightSetting, KeepsAFarServerBusyAlsoWhereActionsTakeAThirdLess) {
  for (const double delay : {0.01, 0.05, 0.1}) {
    for (const std::string schedule : {"gpipe", "1f1b"}) {
      Plan plan = ring_plan();
      plan.schedule = schedule;
      plan.costs.delay = {delay, delay};
      const schedule::Costs measured = plan.costs;
      plan.costs = with_late_frames(plan.costs);
      const int in_flight = resolve_in_flight("auto", plan);
      const auto order = schedule::generate(schedule, {plan.place}, plan.chunks, plan.costs, in_flight).value();
      for (const double factor : {1.0, 0.8, 0.65}) {
        schedule::Costs costs = measured;
        for (auto* const actions : {&costs.forward, &costs.backward}) {
          for (double& seconds : *actions) seconds *= factor;
        }
        const double far = schedule::simulate(order, costs).value().makespan;
        costs.delay = {0, 0};
        const double near = schedule::least_makespan({plan.place}, plan.chunks, costs);
        EXPECT_GE((near + 2 * delay) / far, 0.95) << schedule << ", delay " << delay << ", actions " << factor << ", " << in_flight;
      }
    }
  }
}

TEST(InFlightSetting, NeverAsksForMoreThanAServerAllows) {
  Plan plan = ring_plan();
  plan.chunks = 1000;
  plan.costs.delay = {10, 10};
  EXPECT_LE(resolve_in_flight("auto", plan), 64);
}

TEST(InFlightSetting, IsMeasuredWithServersBeforeARunBeginsAndNeverAgain) {
  TrainConfig config;
  config.in_flight = "auto";
  EXPECT_FALSE(wants_measuring(config)) << "all workers are here";
  config.connect = {"far:7000"};
  EXPECT_TRUE(wants_measuring(config));
  TrainConfig again = config;
  again.resume = true;
  EXPECT_FALSE(wants_measuring(again));
  again = config;
  again.schedule_costs = kRing;
  EXPECT_FALSE(wants_measuring(again)) << "recorded";
  again = config;
  again.in_flight = "7";
  EXPECT_FALSE(wants_measuring(again));
}

TEST(InFlightSetting, TravelsInThePlanAndIsCheckedThere) {
  Plan plan = ring_plan();
  plan.in_flight = 7;
  const nlohmann::json sent = to_json(plan);
  const Plan got = plan_from_json(sent);
  EXPECT_EQ(got.in_flight, 7);
  EXPECT_EQ(costs_text(got.costs), kRing);
  EXPECT_EQ(pipeline_config(got).in_flight, 7);
  for (const auto& [field, value] : std::vector<std::pair<std::string, nlohmann::json>>{{"in_flight", -1},
                                                                                        {"in_flight", 5000},
                                                                                        {"in_flight", "7"},
                                                                                        {"schedule_costs", 3},
                                                                                        {"schedule_costs", "forward=1"},
                                                                                        {"schedule_costs", "forward=1e300,1,1"}}) {
    nlohmann::json bad = sent;
    bad[field] = value;
    EXPECT_THROW(plan_from_json(bad), std::invalid_argument) << field << " " << value;
  }
}

}  // namespace
}  // namespace epipe::train
