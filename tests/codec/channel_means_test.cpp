// Channel means that travel beside the coded values: what they keep, when they are sent, damage.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/measure.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

// Like a gradient behind a normalization: the values of a channel cancel to a thousandth of what signs at random would leave.
torch::Tensor cancelling(std::int64_t n, std::int64_t channels, std::int64_t edge) {
  const auto x = torch::randn({n, channels, edge, edge}) / (torch::rand({n, channels, edge, edge}) + 0.05);
  return x - x.mean({0, 2, 3}, true) + 1e-5 * torch::randn({1, channels, 1, 1});
}

bool has_means(const Bytes& payload) { return load<PayloadKind>(payload, 0) == PayloadKind::kWithMeans; }

torch::Tensor sums(const torch::Tensor& x) { return x.to(torch::kFloat64).sum({0, 2, 3}); }

// The same payload without them.
Bytes stripped(const torch::Tensor& x, const Bytes& payload) {
  const auto bytes = static_cast<std::ptrdiff_t>(means_bytes(static_cast<std::size_t>(x.size(1))));
  return {payload.begin() + bytes, payload.end()};
}

TEST(ChannelMeans, KeepTheSumsOfChannelsThatCancel) {
  torch::manual_seed(1);
  const auto x = cancelling(16, 8, 48);
  for (const std::string spec : {"dct:0.25", "dct:1", "ec:1", "auto:0.5"}) {
    const auto codec = codec_of(spec);
    const Bytes payload = payload_of(*codec, x);
    ASSERT_TRUE(has_means(payload)) << spec;
    const auto with = (sums(decoded(*codec, payload, x.sizes())) - sums(x)).norm().item<double>();
    const auto without = (sums(decoded(*codec, stripped(x, payload), x.sizes())) - sums(x)).norm().item<double>();
    EXPECT_LT(with, 0.02 * sums(x).norm().item<double>()) << spec;
    EXPECT_GT(without, 5 * sums(x).norm().item<double>()) << spec << ": there would be nothing to repair";
  }
}

TEST(ChannelMeans, TakeErrorAway) {
  torch::manual_seed(2);
  const auto x = torch::randn({16, 8, 48, 48}).relu() + torch::randn({1, 8, 1, 1});
  const auto codec = codec_of("dct:0.25");
  const Bytes payload = payload_of(*codec, x);
  ASSERT_TRUE(has_means(payload));
  EXPECT_LE(relative_error(x, decoded(*codec, payload, x.sizes())),
            relative_error(x, decoded(*codec, stripped(x, payload), x.sizes())) * 1.000001);
}

TEST(ChannelMeans, AreLeftOutWhereTheyCostTooMuch) {
  torch::manual_seed(3);
  EXPECT_FALSE(has_means(payload_of(*codec_of("dct:0.25"), torch::randn({4, 400, 7, 7}))));
  EXPECT_FALSE(has_means(payload_of(*codec_of("dct:1"), torch::randn({8, 64, 256}))));
  EXPECT_FALSE(has_means(payload_of(*codec_of("dct:1"), torch::zeros({16, 8, 48, 48}))));
  EXPECT_FALSE(has_means(payload_of(*codec_of("dct:1"), torch::randn({16, 8, 48, 48}) * 1e30))) << "coded with an exponent";
}

TEST(ChannelMeans, AreTheSameForAnyThreads) {
  torch::manual_seed(4);
  ThreadPool pool(3);
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{5, 7, 31, 33}, {1, 1, 1, 1}, {64, 3, 5, 5}}) {
    const auto x = torch::randn(shape);
    const std::span<const float> values(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()));
    const auto alone = map_sums(spec_of(x), values, nullptr);
    EXPECT_EQ(map_sums(spec_of(x), values, &pool), alone);
    const auto exact = x.to(torch::kFloat64).mean({0, 2, 3});
    const auto means = means_of(spec_of(x), alone);
    for (std::size_t c = 0; c < means.size(); ++c) EXPECT_NEAR(means[c], exact[static_cast<std::int64_t>(c)].item<double>(), 1e-6);
  }
}

// The arithmetic of decoding as docs/wire_format.md has it, bit for bit.
TEST(ChannelMeans, DecodeAsTheWireFormatSays) {
  torch::manual_seed(12);
  const auto codec = codec_of("dct:4");
  const Bytes coded = payload_of(*codec, torch::randn({3, 2, 12, 10}));
  ASSERT_EQ(load<PayloadKind>(coded, 0), PayloadKind::kCoded);
  const std::vector<float> means = {0.3F, -1.7F};
  Bytes payload;
  write_means(means, payload);
  payload.insert(payload.end(), coded.begin(), coded.end());
  auto expected = decoded(*codec, coded, {3, 2, 12, 10});
  auto* const x = expected.data_ptr<float>();
  for (std::int64_t c = 0; c < 2; ++c) {
    double sum = 0;
    for (std::int64_t n = 0; n < 3; ++n) {
      std::array<float, 32> parts{};
      for (std::int64_t i = 0; i < 120; ++i) parts[static_cast<std::size_t>(i % 32)] += x[(2 * n + c) * 120 + i];
      double map = 0;
      for (const float part : parts) map += static_cast<double>(part);
      sum += map;
    }
    const auto shift = static_cast<float>(static_cast<double>(means[static_cast<std::size_t>(c)]) - sum / 360);
    for (std::int64_t n = 0; n < 3; ++n) {
      for (std::int64_t i = 0; i < 120; ++i) x[(2 * n + c) * 120 + i] += shift;
    }
  }
  EXPECT_TRUE(torch::equal(decoded(*codec, payload, {3, 2, 12, 10}), expected));
}

class MeansAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(5);
    x_ = cancelling(16, 8, 48);
    payload_ = payload_of(*codec_, x_);
    ASSERT_TRUE(has_means(payload_));
  }
  void expect_refused(torch::IntArrayRef shape, const std::string& why) const {
    auto y = torch::empty(shape);
    const auto result = codec_->decode_into(y, payload_);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  }
  void set_mean(float mean) { std::memcpy(payload_.data() + 4, &mean, sizeof(mean)); }
  std::unique_ptr<Codec> codec_ = codec_of("dct:1");
  torch::Tensor x_;
  Bytes payload_;
};

TEST_F(MeansAttack, ShapeWithoutChannels) { expect_refused({16 * 8, 48, 48}, "has no channels"); }
TEST_F(MeansAttack, OtherChannels) { expect_refused({32, 4, 48, 48}, "expected the means of 4 channels, got those of 8"); }
TEST_F(MeansAttack, EndsWithinTheMeans) {
  payload_.resize(20);
  expect_refused(x_.sizes(), "ends within the means");
}
TEST_F(MeansAttack, BytesThatAreReserved) {
  for (const std::size_t at : {1U, 36U, 47U}) {  // eight means end at 36, the payload goes on at 48
    const std::byte sound = std::exchange(payload_[at], std::byte{1});
    expect_refused(x_.sizes(), "must be 0");
    payload_[at] = sound;
  }
}
TEST_F(MeansAttack, NothingBehindThem) {
  payload_.resize(means_bytes(8));
  expect_refused(x_.sizes(), "nothing follows");
}
TEST_F(MeansAttack, TwiceOver) {
  const Bytes means(payload_.begin(), payload_.begin() + static_cast<std::ptrdiff_t>(means_bytes(8)));
  payload_.insert(payload_.begin(), means.begin(), means.end());
  expect_refused(x_.sizes(), "expected a coded payload");
}
TEST_F(MeansAttack, MeansThatAreNoNumbers) {
  for (const float mean : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e38F}) {
    set_mean(mean);
    expect_refused(x_.sizes(), "mean is not a number");
  }
}
TEST_F(MeansAttack, LargeMeansGiveFiniteValues) {
  set_mean(1e30F);
  EXPECT_TRUE(torch::isfinite(decoded(*codec_, payload_, x_.sizes())).all().item<bool>());
}
TEST_F(MeansAttack, EveryCutIsRefused) {
  for (std::size_t size = 0; size < payload_.size(); size += 1 + size / 16) {
    auto y = torch::empty_like(x_);
    EXPECT_FALSE(codec_->decode_into(y, ByteView(payload_).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace epipe::codec
