#include "epipe/schedule/print.h"

#include <gtest/gtest.h>

#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

std::string grid(std::string_view name, std::string_view placement, int chunks = 4) {
  return fmt::format("\n{}", to_grid(make(name, placement, chunks)).value());
}

TEST(Grid, OfGpipeOnAChainOfTwo) {
  EXPECT_EQ(grid("gpipe", "0,1"), R"(
slot      0    1    2    3    4    5    6    7    8    9
worker 0  F0.0 F1.0 F2.0 F3.0 .    .    B0.0 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 F3.1 B0.1 B1.1 B2.1 B3.1 .
)");
}

TEST(Grid, Of1f1bOnAChainOfTwo) {
  EXPECT_EQ(grid("1f1b", "0,1"), R"(
slot      0    1    2    3    4    5    6    7    8    9
worker 0  F0.0 F1.0 .    B0.0 F2.0 B1.0 F3.0 B2.0 .    B3.0
worker 1  .    F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 .
)");
}

TEST(Grid, OfGpipeOnAChainOfThree) {
  EXPECT_EQ(grid("gpipe", "0,1,2"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11
worker 0  F0.0 F1.0 F2.0 F3.0 .    .    .    .    B0.0 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 F3.1 .    .    B0.1 B1.1 B2.1 B3.1 .
worker 2  .    .    F0.2 F1.2 F2.2 F3.2 B0.2 B1.2 B2.2 B3.2 .    .
)");
}

TEST(Grid, Of1f1bOnAChainOfThree) {
  EXPECT_EQ(grid("1f1b", "0,1,2"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11
worker 0  F0.0 F1.0 F2.0 .    .    B0.0 F3.0 B1.0 .    B2.0 .    B3.0
worker 1  .    F0.1 F1.1 .    B0.1 F2.1 B1.1 F3.1 B2.1 .    B3.1 .
worker 2  .    .    F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2 .    .
)");
}

TEST(Grid, OfGpipeOnAChainOfFour) {
  EXPECT_EQ(grid("gpipe", "0,1,2,3"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13
worker 0  F0.0 F1.0 F2.0 F3.0 .    .    .    .    .    .    B0.0 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 F3.1 .    .    .    .    B0.1 B1.1 B2.1 B3.1 .
worker 2  .    .    F0.2 F1.2 F2.2 F3.2 .    .    B0.2 B1.2 B2.2 B3.2 .    .
worker 3  .    .    .    F0.3 F1.3 F2.3 F3.3 B0.3 B1.3 B2.3 B3.3 .    .    .
)");
}

TEST(Grid, Of1f1bOnAChainOfFour) {
  EXPECT_EQ(grid("1f1b", "0,1,2,3"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13
worker 0  F0.0 F1.0 F2.0 F3.0 .    .    .    B0.0 .    B1.0 .    B2.0 .    B3.0
worker 1  .    F0.1 F1.1 F2.1 .    .    B0.1 F3.1 B1.1 .    B2.1 .    B3.1 .
worker 2  .    .    F0.2 F1.2 .    B0.2 F2.2 B1.2 F3.2 B2.2 .    B3.2 .    .
worker 3  .    .    .    F0.3 B0.3 F1.3 B1.3 F2.3 B2.3 F3.3 B3.3 .    .    .
)");
}

TEST(Grid, OfGpipeOnTheClientServerRing) {
  EXPECT_EQ(grid("gpipe", "0,1,0"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15
worker 0  F0.0 F1.0 F2.0 F3.0 F0.2 F1.2 F2.2 F3.2 B0.2 B1.2 B2.2 B3.2 B0.0 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 F3.1 .    .    .    .    B0.1 B1.1 B2.1 B3.1 .    .    .
)");
}

TEST(Grid, Of1f1bOnTheClientServerRing) {
  EXPECT_EQ(grid("1f1b", "0,1,0"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15
worker 0  F0.0 F1.0 F0.2 F2.0 B0.2 F1.2 B1.2 F2.2 B0.0 F3.0 B2.2 F3.2 B1.0 B3.2 B2.0 B3.0
worker 1  .    F0.1 F1.1 .    .    B0.1 F2.1 B1.1 .    .    F3.1 B2.1 .    .    B3.1 .
)");
}

TEST(Grid, OfGpipeOnARingOfThreeWorkers) {
  EXPECT_EQ(grid("gpipe", "0,1,2,0"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15
worker 0  F0.0 F1.0 F2.0 F3.0 F0.3 F1.3 F2.3 F3.3 B0.3 B1.3 B2.3 B3.3 B0.0 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 F3.1 .    .    .    .    .    B0.1 B1.1 B2.1 B3.1 .    .
worker 2  .    .    F0.2 F1.2 F2.2 F3.2 .    .    .    B0.2 B1.2 B2.2 B3.2 .    .    .
)");
}

TEST(Grid, Of1f1bOnARingOfThreeWorkers) {
  EXPECT_EQ(grid("1f1b", "0,1,2,0"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15
worker 0  F0.0 F1.0 F2.0 F0.3 F3.0 B0.3 F1.3 B1.3 F2.3 B2.3 F3.3 B0.0 B3.3 B1.0 B2.0 B3.0
worker 1  .    F0.1 F1.1 F2.1 .    .    .    B0.1 F3.1 B1.1 .    B2.1 .    .    B3.1 .
worker 2  .    .    F0.2 F1.2 .    .    B0.2 F2.2 B1.2 F3.2 B2.2 .    .    B3.2 .    .
)");
}

TEST(Grid, Of1f1bWithTwoStagesOnTheFirstWorker) {
  EXPECT_EQ(grid("1f1b", "0,0,1"), R"(
slot      0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15
worker 0  F0.0 F0.1 F1.0 F1.1 F2.0 B0.1 F2.1 B0.0 F3.0 B1.1 F3.1 B1.0 B2.1 B2.0 B3.1 B3.0
worker 1  .    .    F0.2 B0.2 F1.2 B1.2 .    F2.2 B2.2 .    .    F3.2 B3.2 .    .    .
)");
}

TEST(Grid, OfZbH1OnAChainOfTwo) {
  EXPECT_EQ(grid("zb-h1", "0,1"), R"(
slot      0     1     2     3     4     5     6     7     8     9     10    11    12
worker 0  F0.0  F1.0  .     B0.0  ==    F2.0  B1.0  ==    F3.0  B2.0  ==    B3.0  ==
worker 1  .     F0.1  Bi0.1 F1.1  Bi1.1 Bw0.1 F2.1  Bi2.1 Bw1.1 F3.1  Bi3.1 Bw2.1 Bw3.1
)");
}

TEST(Grid, OfZbH1OnAChainOfThree) {
  EXPECT_EQ(grid("zb-h1", "0,1,2"), R"(
slot      0     1     2     3     4     5     6     7     8     9     10    11    12    13
worker 0  F0.0  F1.0  F2.0  .     .     B0.0  ==    F3.0  B1.0  ==    B2.0  ==    B3.0  ==
worker 1  .     F0.1  F1.1  .     Bi0.1 F2.1  Bi1.1 Bw0.1 F3.1  Bi2.1 Bw1.1 Bi3.1 Bw2.1 Bw3.1
worker 2  .     .     F0.2  Bi0.2 F1.2  Bi1.2 F2.2  Bi2.2 Bw0.2 F3.2  Bi3.2 Bw1.2 Bw2.2 Bw3.2
)");
}

TEST(Grid, OfZbH1OnAChainOfFour) {
  EXPECT_EQ(grid("zb-h1", "0,1,2,3", 6), R"(
slot      0     1     2     3     4     5     6     7     8     9     10    11    12    13    14    15    16    17    18    19    20
worker 0  F0.0  F1.0  F2.0  F3.0  .     .     .     B0.0  ==    F4.0  B1.0  ==    F5.0  B2.0  ==    B3.0  ==    B4.0  ==    B5.0  ==
worker 1  .     F0.1  F1.1  F2.1  .     .     Bi0.1 F3.1  Bi1.1 Bw0.1 F4.1  Bi2.1 Bw1.1 F5.1  Bi3.1 Bw2.1 Bi4.1 Bw3.1 Bi5.1 Bw4.1 Bw5.1
worker 2  .     .     F0.2  F1.2  .     Bi0.2 F2.2  Bi1.2 F3.2  Bi2.2 Bw0.2 F4.2  Bi3.2 Bw1.2 F5.2  Bi4.2 Bw2.2 Bi5.2 Bw3.2 Bw4.2 Bw5.2
worker 3  .     .     .     F0.3  Bi0.3 F1.3  Bi1.3 F2.3  Bi2.3 F3.3  Bi3.3 Bw0.3 F4.3  Bi4.3 Bw1.3 F5.3  Bi5.3 Bw2.3 Bw3.3 Bw4.3 Bw5.3
)");
}

TEST(Grid, WidensItsColumnsForTwoDigits) {
  const std::string wide = grid("gpipe", "0", 11);
  EXPECT_NE(wide.find("F9.0  F10.0 B0.0  B1.0"), std::string::npos) << wide;
}

TEST(Csv, HasAHeaderAndOneLinePerAction) {
  EXPECT_EQ(to_csv(make("1f1b", "0,1", 2)).value(),
            "worker,slot,kind,micro_batch,stage\n"
            "0,0,F,0,0\n"
            "0,1,F,1,0\n"
            "0,3,B,0,0\n"
            "0,5,B,1,0\n"
            "1,1,F,0,1\n"
            "1,2,B,0,1\n"
            "1,3,F,1,1\n"
            "1,4,B,1,1\n");
}

TEST(Csv, NamesTheTwoPartsOfASplitBackward) {
  EXPECT_EQ(to_csv(make("zb-h1", "0,1", 1)).value(),
            "worker,slot,kind,micro_batch,stage\n"
            "0,0,F,0,0\n"
            "0,3,B,0,0\n"
            "1,1,F,0,1\n"
            "1,2,Bi,0,1\n"
            "1,3,Bw,0,1\n");
}

TEST(Print, RefusesAScheduleThatCannotRun) {
  auto schedule = make("gpipe", "0,1", 2);
  schedule.per_worker[0].clear();
  EXPECT_FALSE(to_grid(schedule));
  EXPECT_FALSE(to_csv(schedule));
  EXPECT_FALSE(to_grid(Schedule{}));
}

}  // namespace
}  // namespace epipe::schedule
