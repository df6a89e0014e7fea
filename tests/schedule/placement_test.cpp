#include "epipe/schedule/placement.h"

#include <gtest/gtest.h>

namespace epipe::schedule {
namespace {

std::string placement_error(std::string_view text) {
  const auto placement = parse_placement(text);
  return placement ? "" : placement.error().message;
}

TEST(Placement, ReadsTheWorkerOfEachStageAndWritesItBack) {
  const auto ring = parse_placement("0,1,0");
  ASSERT_TRUE(ring);
  EXPECT_EQ(ring.value().worker_of, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(ring.value().stages(), 3);
  EXPECT_EQ(ring.value().workers(), 2);
  EXPECT_EQ(to_string(ring.value()), "0,1,0");
}

TEST(Placement, KnowsWhichCutsJoinTwoWorkers) {
  const auto placement = parse_placement("0,0,1").value();
  EXPECT_FALSE(placement.crosses(0));
  EXPECT_TRUE(placement.crosses(1));
}

TEST(Placement, RefusesTextThatIsNoListOfNumbersAndSaysWhere) {
  for (const char* text : {"", ",", "0,", "0,,1", "0 1", "0,1;0", "a", "0,1.5", "0x1", "99999999999999999999", " 0"}) {
    EXPECT_NE(placement_error(text).find("expected the worker of each stage"), std::string::npos) << text;
  }
  EXPECT_NE(placement_error("0,1,x").find("at character 5"), std::string::npos) << placement_error("0,1,x");
}

TEST(Placement, RefusesAWorkerWithoutAStageByItsNumber) {
  EXPECT_NE(placement_error("0,2").find("no stage to worker 1"), std::string::npos) << placement_error("0,2");
  EXPECT_NE(placement_error("1,2").find("no stage to worker 0"), std::string::npos) << placement_error("1,2");
}

TEST(Placement, RefusesNegativeAndVeryLargeWorkers) {
  EXPECT_NE(placement_error("0,-1").find("got -1"), std::string::npos) << placement_error("0,-1");
  EXPECT_NE(placement_error("0,2000000000").find("got 2000000000"), std::string::npos);
}

TEST(Placement, TakesTheMostStagesAndRefusesOneMore) {
  std::string text = "0";
  for (int j = 1; j < kMaxStages; ++j) text += ",0";
  EXPECT_EQ(placement_error(text), "");
  EXPECT_NE(placement_error(text + ",0").find("1 to 256 stages"), std::string::npos) << placement_error(text + ",0");
}

}  // namespace
}  // namespace epipe::schedule
