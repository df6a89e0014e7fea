// Steps from what the steps before gave.
#include "epipe/codec/step_search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace epipe::codec {
namespace {

// What a step gives: step^slope times a constant.
TEST(StepWalk, MeetsTheTargetOfAPowerAtTheThirdStep) {
  const StepRange range{1e-6F, 1e6F, 0};
  for (const double slope : {-0.4, -1.0, -2.5, 0.5, 2.0, 3.0}) {
    const auto got = [slope](float step) { return 100 * std::pow(step, slope); };
    StepWalk walk(slope < 0 ? -1 : 2);
    float step = 1;
    for (int pass = 0; pass < 2; ++pass) step = walk.next(step, got(step), 30, range);
    EXPECT_NEAR(got(step), 30, 0.01) << slope;
    EXPECT_NEAR(walk.slope(), slope, 1e-3);
  }
}

TEST(StepWalk, StaysInItsRangeAndNeverTurnsRound) {
  const StepRange range{0.5F, 4, 0};
  StepWalk walk(-1);
  EXPECT_EQ(walk.next(1, 1e9, 1, range), 4);
  EXPECT_EQ(walk.next(4, 2e9, 1, range), 4);  // more with a larger step, which cannot be
  EXPECT_LT(walk.slope(), 0);
}

// Nothing beyond 3, much below: a secant would jump to and fro.
TEST(StepWalk, ClosesInOnAJump) {
  const StepRange range{1e-3F, 1e3F, 0};
  StepWalk walk(-1);
  float step = 1;
  for (int pass = 0; pass < 12; ++pass) step = walk.next(step, step < 3 ? 5 : 0, 1, range);
  EXPECT_NEAR(step, 3, 0.02);
}

}  // namespace
}  // namespace epipe::codec
