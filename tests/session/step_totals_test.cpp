#include "epipe/session/step_totals.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "epipe/session/step_result.h"

namespace epipe::session {
namespace {

pipeline::StepResult some_step() {
  pipeline::StepResult result = no_result(2, 2);
  result.samples = 32;
  result.forward[0].wire_bytes = 1000;
  result.forward[0].values = 4000;
  result.backward[1].wire_bytes = 500;
  result.backward[1].encode_seconds = 0.25;
  result.workers[1].forward = 0.5;
  result.workers[1].peak_memory_bytes = 7'000'000;
  return result;
}

TEST(StepTotals, AddUpAndSurviveTheirText) {
  StepTotals totals;
  totals.steps = 2;
  totals.add(some_step());
  totals.add(some_step());
  const auto read = step_totals_from_text(to_text(totals));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read.value().steps, 2U);
  EXPECT_EQ(read.value().samples, 64U);
  EXPECT_EQ(read.value().forward[0].wire_bytes, 2000U);
  EXPECT_EQ(read.value().backward[1].encode_seconds, 0.5);
  EXPECT_EQ(read.value().workers[1].forward, 1);
  EXPECT_EQ(read.value().workers[1].peak_memory_bytes, 7'000'000U) << "the most, not the sum";
}

TEST(StepTotals, HaveTheQueuesOfTheLastStepAndNoneWhereAProcessHasEnded) {
  StepTotals totals;
  pipeline::StepResult step = some_step();
  for (const std::uint64_t depth : {4, 1}) {
    step.forward[0].send_queue_depth = depth;
    totals.add(step);
  }
  EXPECT_EQ(totals.forward[0].send_queue_depth, 1U);
  totals.has_ended();
  EXPECT_EQ(totals.forward[0].send_queue_depth, 0U);
  EXPECT_EQ(totals.workers[1].peak_memory_bytes, 0U) << "its memory was given back";
  EXPECT_EQ(totals.forward[0].wire_bytes, 2000U) << "what it sent was sent";
}

TEST(StepTotals, OfTheLargestRunFitAMessage) {
  pipeline::StepResult large = no_result(1000, 1000);
  for (auto& traffic : large.forward) traffic.error_energy = 1.2345678901234567e-100;
  for (auto& traffic : large.backward) traffic.wire_bytes = std::numeric_limits<std::uint64_t>::max();
  StepTotals totals;
  totals.add(large);
  EXPECT_EQ(totals.forward.size(), StepTotals::kMostEntries);
  EXPECT_LE(to_text(totals).size(), kMaxTotalsBytes);
}

TEST(StepTotals, OfAStrangerAreReadOrRefused) {
  StepTotals totals;
  totals.add(some_step());
  const std::string text = to_text(totals);
  for (std::size_t length = 0; length < text.size(); length += 7) EXPECT_FALSE(step_totals_from_text(text.substr(0, length))) << length;
  const auto changed = [&](const char* pointer, const nlohmann::json& value) {
    auto object = nlohmann::json::parse(text);
    object[nlohmann::json::json_pointer(pointer)] = value;
    return step_totals_from_text(object.dump());
  };
  EXPECT_TRUE(changed("/steps", 7));
  EXPECT_FALSE(changed("/steps", -7));
  EXPECT_FALSE(changed("/steps", 0.5));
  EXPECT_FALSE(changed("/steps", "7"));
  EXPECT_FALSE(changed("/forward", nlohmann::json::object()));
  EXPECT_FALSE(changed("/forward/0/wire_bytes", nullptr));
  EXPECT_FALSE(changed("/forward/0", 3));
  nlohmann::json many = nlohmann::json::array();
  for (int i = 0; i < 65; ++i) many.push_back(nlohmann::json::parse(text)["forward"][0]);
  EXPECT_FALSE(changed("/forward", many));
  EXPECT_FALSE(step_totals_from_text("[]"));
  EXPECT_FALSE(step_totals_from_text(std::string(100'000, '[')));
}

TEST(StepTotals, MayOnlyGrowAndNoFasterThanAMachine) {
  StepTotals before;
  before.add(some_step());
  StepTotals now = before;
  EXPECT_TRUE(may_follow(before, now, 1));
  now.add(some_step());
  now.steps = 1;
  EXPECT_TRUE(may_follow(before, now, 1));
  EXPECT_FALSE(may_follow(now, before, 1)) << "it falls";
  const auto refused = [&](const std::function<void(StepTotals&)>& change) {
    StepTotals other = now;
    change(other);
    return !may_follow(before, other, 1);
  };
  EXPECT_TRUE(refused([](StepTotals& t) { t.steps = std::numeric_limits<std::uint64_t>::max(); }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.forward[0].wire_bytes = std::uint64_t{1} << 62; }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.forward[0].encode_seconds = 1e9; }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.forward[0].encode_seconds = -1; }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.forward[0].error_energy = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.forward.pop_back(); }));
  EXPECT_TRUE(refused([](StepTotals& t) { t.workers[1].forward = std::nan(""); }));
}

}  // namespace
}  // namespace epipe::session
