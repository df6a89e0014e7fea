// The record of rates that were chosen for a link.
#include "epipe/train/rate_record.h"

#include <gtest/gtest.h>

namespace epipe::train {
namespace {

RateChange change_at(std::uint64_t step, double bits) {
  return {step, {{bits, bits}, {bits, 0}}, session::LinkMeasurement{1e6, 2e6, 0.1}, 0.5};
}

RateRecord two_changes() {
  RateRecord record(2, "");
  record.add(change_at(3, 8));
  record.add(change_at(7, 2));
  return record;
}

TEST(RateRecord, SaysTheRatesOfEveryStep) {
  const RateRecord record = two_changes();
  EXPECT_EQ(record.at(2), nullptr);
  for (const std::uint64_t step : {3, 6}) EXPECT_EQ(record.at(step)->rates[0].forward, 8) << step;
  for (const std::uint64_t step : {7, 1000}) EXPECT_EQ(record.at(step)->rates[0].forward, 2) << step;
  EXPECT_FALSE(record.repeats());
}

TEST(RateRecord, ItsTextRepeatsIt) {
  const RateRecord record = two_changes();
  EXPECT_EQ(record.text(), "3:8,8,8,0;7:2,2,2,0");
  const RateRecord again(2, record.text());
  EXPECT_TRUE(again.repeats());
  EXPECT_EQ(again.text(), record.text());
  EXPECT_EQ(again.at(5)->rates[1].forward, 8);
  EXPECT_FALSE(again.at(5)->link);
}

TEST(RateRecord, RefusesATextThatIsNone) {
  for (const char* const wrong : {"3", "3:", "3:1,2,3", "3:1,2,3,4,5", "x:1,2,3,4", "3:1,2,3,4;", "3:1,2,3,4;3:1,2,3,4",
                                  "5:1,2,3,4;4:1,2,3,4", "3:1,2,3,99", "3:1,2,3,-1", "3:1,2,3,nan", "3:1,2,3,4 5:1,2,3,4", "-1:1,2,3,4"}) {
    try {
      const RateRecord record(2, wrong);
      ADD_FAILURE() << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("4 bits for each step"), std::string::npos) << error.what();
    }
  }
}

TEST(RateRecord, ComesBackFromACheckpoint) {
  const RateRecord record = two_changes();
  RateRecord restored(2, "");
  restored.set_state(record.state());
  EXPECT_EQ(restored.text(), record.text());
  EXPECT_DOUBLE_EQ(restored.at(3)->link->down, 2e6);
  EXPECT_DOUBLE_EQ(restored.at(3)->seconds, 0.5);
  EXPECT_FALSE(restored.repeats());
  RateRecord repeating(2, "");
  repeating.set_state(RateRecord(2, record.text()).state());
  EXPECT_TRUE(repeating.repeats()) << "a run that repeats another one still does when it is resumed";
}

TEST(RateRecord, AStepThatIsDoneAgainHasTheRatesThatItHad) {
  RateRecord record = two_changes();
  RateRecord before(2, "");
  before.add(change_at(3, 8));
  record.set_state(before.state());  // of the checkpoint at step 5, say
  EXPECT_EQ(record.text(), "3:8,8,8,0;7:2,2,2,0");
  record.set_state({});  // or from the beginning
  EXPECT_EQ(record.text(), "3:8,8,8,0;7:2,2,2,0");
}

TEST(RateRecord, TakesNoStateOfAnotherRun) {
  RateRecord record(1, "");
  record.set_state(two_changes().state());
  EXPECT_TRUE(record.changes().empty()) << "two cuts";
  RateRecord wild(2, "");
  wild.set_state({{"link/changes", torch::full({1, 9}, 1e9, torch::kFloat64)}});
  EXPECT_TRUE(wild.changes().empty()) << "no rate";
}

TEST(RateRecord, NobodyGetsLessThanWhatIsNeeded) {
  const RateChange change{0, {{4, 0}, {1, 8}}};
  const pipeline::Rates rates = at_least({{2, 3}, {2, 2}}, &change);
  EXPECT_EQ(rates[0].forward, 4);
  EXPECT_EQ(rates[0].backward, 3);
  EXPECT_EQ(rates[1].forward, 2);
  EXPECT_EQ(rates[1].backward, 8);
  EXPECT_EQ(at_least({}, &change)[1].backward, 8) << "fixed rates need nothing";
  EXPECT_TRUE(at_least({}, nullptr).empty());
}

}  // namespace
}  // namespace epipe::train
