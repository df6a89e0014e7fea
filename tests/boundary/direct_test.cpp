#include "epipe/boundary/direct.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

namespace epipe::boundary {
namespace {

BoundaryConfig config() {
  BoundaryConfig config;
  config.cut = 2;
  config.capacity = 2;
  return config;
}

TEST(Direct, HandsTheVeryTensorsOver) {
  Direct direct(config());
  const auto x = torch::randn({2, 3}).requires_grad_();
  const auto y = torch::randn({4});
  direct.send({5, 1, false, false, {x, y}});
  const auto got = direct.recv(5, 1);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].data_ptr(), x.data_ptr());
  EXPECT_EQ(got[1].data_ptr(), y.data_ptr());
  EXPECT_FALSE(got[0].requires_grad()) << "the graph ends at the stage";
  direct.finish();
}

TEST(Direct, CountsWhatFramesWouldTake) {
  Direct direct(config());
  std::uint64_t bytes = 0;
  for (const auto& x : {torch::randn({2, 3}), torch::randn({1, 2, 3, 4}), torch::ones({}), torch::empty({0, 3}),
                        torch::ones({5}, torch::kHalf), torch::ones({7, 2}, torch::kBFloat16)}) {
    Bytes frame;
    ASSERT_TRUE(codec::encode_frame(*codec::make_codec("none").value(), x, {}, {}, nullptr, frame));
    bytes += frame.size();
    if (x.scalar_type() == torch::kFloat32) {
      direct.send({0, 0, false, false, {x}});
      direct.recv(0, 0);
    } else {
      EXPECT_EQ(codec::plain_frame_bytes(x), frame.size());
      bytes -= frame.size();
    }
  }
  EXPECT_EQ(direct.take_traffic().wire_bytes, bytes);
  EXPECT_EQ(direct.take_traffic().wire_bytes, 0U);
}

TEST(Direct, NamesTheTensorThatIsNotFiniteWhenTheStepIsOver) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Direct direct(config());
    direct.send({5, 0, false, false, {torch::ones({3})}});
    direct.send({5, 1, false, false, {torch::tensor({1.0F, bad, -2.0F})}});
    try {
      direct.finish();
      FAIL() << bad;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("cut 2 forward, step 5, micro-batch 1: the tensor holds"), std::string::npos)
          << error.what();
    }
  }
}

// Else the one that comes second would find nothing here, go on to the gradients and blame those.
TEST(Direct, NamesItToBothWorkersThatFinish) {
  Direct direct(config());
  direct.send({5, 0, false, false, {torch::full({3}, std::numeric_limits<float>::quiet_NaN())}});
  std::atomic<int> named = 0;
  const auto finish = [&] {
    try {
      direct.finish();
    } catch (const std::runtime_error&) {
      ++named;
    }
  };
  std::thread other(finish);
  finish();
  other.join();
  EXPECT_EQ(named, 2);
}

TEST(Direct, LetsNotANumberPassWhereItIsFlagged) {
  auto lenient = config();
  lenient.flag_non_finite = true;
  Direct direct(lenient);
  direct.send({5, 0, false, false, {torch::full({3}, std::numeric_limits<float>::quiet_NaN())}});
  EXPECT_TRUE(direct.recv(5, 0)[0].isnan().all().item<bool>());
  direct.finish();
}

TEST(Direct, RefusesAnotherMicroBatch) {
  Direct direct(config());
  direct.send({5, 1, false, false, {torch::ones({3})}});
  EXPECT_THROW(direct.recv(5, 0), std::logic_error);
}

TEST(Direct, ClosingEndsAWait) {
  Direct direct(config());
  std::thread waiting([&] { EXPECT_THROW(direct.recv(0, 0), Closed); });
  direct.close();
  waiting.join();
}

}  // namespace
}  // namespace epipe::boundary
