// Damaged payloads of the entropy codecs are refused by name. See klt_test.cpp and channel_means_test.cpp for what may stand in front of
// them.
#include <gtest/gtest.h>

#include <limits>

#include "epipe/codec/entropy_payload.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

// One attack per rule of the payload. Each starts from a sound payload.
class EntropyAttack : public ::testing::Test {
 protected:
  EntropyAttack() : x_((torch::manual_seed(11), torch::randn({2, 3, 20, 20}))), payload_(payload_of(*codec_, x_)) {}

  void expect_refused(const char* why) const {
    auto y = torch::empty_like(x_);
    const auto result = codec_->decode_into(y, payload_);
    ASSERT_FALSE(result.ok()) << why;
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().text();
  }

  std::unique_ptr<Codec> codec_ = codec_of("dct:3");
  torch::Tensor x_;
  Bytes payload_;
};

TEST_F(EntropyAttack, KindThatDoesNotExist) {
  payload_[0] = std::byte{7};
  expect_refused("kind");
}
TEST_F(EntropyAttack, BlocksThatDoNotExist) {
  payload_[1] = std::byte{0x80 | 9};
  expect_refused("do not fit this shape");
}
TEST_F(EntropyAttack, MeansFinerThanAQuarter) {
  payload_[1] |= std::byte{3 << 5};
  expect_refused("do not fit this shape");
}
TEST_F(EntropyAttack, BitsThatAreReserved) {
  for (const unsigned bit : {1U, 2U, 4U}) {
    const std::byte sound = payload_[1];
    payload_[1] |= std::byte(bit);
    expect_refused("do not fit this shape");
    payload_[1] = sound;
  }
}
TEST_F(EntropyAttack, MeansOfBlocksThatAreNotTransformed) {
  payload_[1] = std::byte{1 << 5 | 16};
  expect_refused("do not fit this shape");
}
TEST_F(EntropyAttack, MeansOfRows) {
  payload_[1] = std::byte{1 << 5};
  payload_[2] = std::byte{1};
  expect_refused("do not fit this shape");
}
TEST_F(EntropyAttack, ContextThatDoesNotFit) {
  payload_[2] = std::byte{1};
  expect_refused("do not fit this shape");
}
TEST_F(EntropyAttack, ChunksTooSmallOrLanesTooMany) {
  payload_[3] = std::byte{5};
  expect_refused("chunks");
  payload_[3] = std::byte{16 | 7 << 5};
  expect_refused("lanes");
}
TEST_F(EntropyAttack, StepThatIsNotANumber) {
  for (const float step : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0F, -1.0F, 1e30F}) {
    store(MutableBytes(payload_), 4, step);
    expect_refused("step");
  }
}
TEST_F(EntropyAttack, ExponentOutOfRange) {
  store(MutableBytes(payload_), 8, std::int16_t{-3000});
  expect_refused("step");
}
TEST_F(EntropyAttack, MoreTablesThanAllowed) {
  payload_[10] = std::byte{200};
  expect_refused("tables");
}
TEST_F(EntropyAttack, AnExponentThatOverflowsGivesTheLargestFloat) {
  store(MutableBytes(payload_), 8, std::int16_t{250});
  auto y = torch::empty_like(x_);
  ASSERT_TRUE(codec_->decode_into(y, payload_).ok());
  EXPECT_TRUE(torch::isfinite(y).all().item<bool>());
}
TEST_F(EntropyAttack, AnyDamageToTheWordsIsFound) {
  int found = 0;
  const int tries = 200;
  for (int i = 0; i < tries; ++i) {
    Bytes damaged = payload_;
    damaged[damaged.size() - 1 - static_cast<std::size_t>(i)] ^= std::byte{0x10};
    auto y = torch::empty_like(x_);
    found += codec_->decode_into(y, damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(found, tries * 9 / 10);
}

}  // namespace
}  // namespace epipe::codec
