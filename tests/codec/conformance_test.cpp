// What every codec promises. A new codec joins by adding its spec to support/codecs.h.
#include <gtest/gtest.h>

#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

class EveryCodec : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, ::testing::ValuesIn(every_spec()), [](const auto& spec) {
  std::string name = spec.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// 0 and 1 value, no dims, fewer values than runs, odd sizes, several dims, one large enough for brackets and threads.
std::vector<torch::Tensor> shapes() {
  torch::manual_seed(1);
  std::vector<torch::Tensor> all;
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{},
                                                                                       {0},
                                                                                       {1},
                                                                                       {2},
                                                                                       {3},
                                                                                       {5},
                                                                                       {2, 0, 3},
                                                                                       {7, 1},
                                                                                       {1, 1, 1, 1},
                                                                                       {65},
                                                                                       {4, 9},
                                                                                       {3, 10, 12},
                                                                                       {2, 3, 11, 13},
                                                                                       {1, 2, 3, 4, 5, 1, 2, 1},
                                                                                       {2, 4, 90, 91}}) {
    all.push_back(torch::randn(shape));
  }
  return all;
}

TEST_P(EveryCodec, RoundTripsEveryShapeWithinItsBounds) {
  for (const auto& x : shapes()) {
    const auto codec = codec_of(GetParam());
    const Bytes payload = payload_of(*codec, x);
    const auto bounds = codec->payload_bounds(spec_of(x));
    EXPECT_GE(payload.size(), bounds.min) << x.sizes();
    EXPECT_LE(payload.size(), bounds.max) << x.sizes();
    EXPECT_EQ(payload.empty(), x.numel() == 0);
    const auto y = decoded(*codec, payload, x.sizes());
    EXPECT_TRUE(torch::isfinite(y).all().item<bool>()) << x.sizes();
  }
}

TEST_P(EveryCodec, TakesHardValues) {
  for (const std::size_t n : {1U, 2U, 17U, 1000U}) {
    for (const auto& [name, values] : hard_values(n, 3)) {
      const auto x = tensor_of(values).view({1, -1, 1});
      const auto codec = codec_of(GetParam());
      Bytes payload;
      const auto result = codec->encode(x, {}, payload);
      if (!result) {
        // Only a range the codec cannot hold is an excuse.
        EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange) << name << ": " << result.error().text();
        EXPECT_TRUE(payload.empty()) << name;
        EXPECT_TRUE(name == "one huge among zeros" || name == "any magnitude up to 2^63") << name << ": " << result.error().text();
        continue;
      }
      EXPECT_TRUE(torch::isfinite(decoded(*codec, payload, x.sizes())).all().item<bool>()) << name << ' ' << n;
    }
  }
}

TEST_P(EveryCodec, EncodesAViewLikeItsCopy) {
  torch::manual_seed(2);
  const auto base = torch::randn({6, 8, 10, 12});
  for (const auto& view : {base.transpose(1, 3), base.slice(0, 1, 6, 2), base.select(1, 3), base.permute({3, 2, 1, 0})}) {
    ASSERT_FALSE(view.is_contiguous());
    const auto a = codec_of(GetParam());
    const auto b = codec_of(GetParam());
    EXPECT_EQ(payload_of(*a, view), payload_of(*b, view.contiguous()));
  }
}

TEST_P(EveryCodec, TakesATensorThatRequiresGrad) {
  auto x = torch::randn({3, 4, 5});
  const Bytes expected = payload_of(*codec_of(GetParam()), x);
  x.requires_grad_(true);
  EXPECT_EQ(payload_of(*codec_of(GetParam()), x), expected);
}

TEST_P(EveryCodec, RefusesNanAndInfAndLeavesNothingBehind) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t n : {1, 100, 70'000}) {
      for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        auto x = torch::ones({1, n, 1});
        x.view({-1})[at] = bad;
        const auto codec = codec_of(GetParam());
        Bytes out(3, std::byte{7});
        const auto result = codec->encode(x, {}, out);
        ASSERT_FALSE(result.ok()) << bad << " at " << at << " of " << n;
        EXPECT_EQ(result.error().code, ErrorCode::kNonFinite) << result.error().text();
        EXPECT_EQ(out.size(), 3U);
        EXPECT_TRUE(codec->state().empty());
      }
    }
  }
}

TEST_P(EveryCodec, GivesTheSameBytesForAnyNumberOfThreads) {
  torch::manual_seed(3);
  const auto x = torch::relu(torch::randn({2, 8, 64, 67}));
  const Bytes expected = payload_of(*codec_of(GetParam()), x);
  const auto y = round_trip(GetParam(), x);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    const auto codec = codec_of(GetParam(), {&pool});
    EXPECT_EQ(payload_of(*codec, x), expected) << threads;
    EXPECT_TRUE(torch::equal(decoded(*codec, expected, x.sizes()), y)) << threads;
  }
}

TEST_P(EveryCodec, GivesTheSameBytesOnEveryInstructionSet) {
  torch::manual_seed(4);
  const auto x = torch::randn({2, 5, 40, 41}) * 3;
  const Bytes expected = payload_of(*codec_of(GetParam(), {nullptr, &kernels::scalar()}), x);
  for (const kernels::Kernels* k : {kernels::avx2(), kernels::avx512()}) {
    if (k == nullptr) continue;
    const auto codec = codec_of(GetParam(), {nullptr, k});
    EXPECT_EQ(payload_of(*codec, x), expected) << k->name;
    EXPECT_TRUE(torch::equal(decoded(*codec, expected, x.sizes()), round_trip(GetParam(), x))) << k->name;
  }
}

TEST_P(EveryCodec, RefusesEveryPayloadOfTheWrongLength) {
  const auto x = torch::randn({2, 3, 7, 9});
  const auto codec = codec_of(GetParam());
  Bytes payload = payload_of(*codec, x);
  auto y = torch::empty_like(x);
  for (std::size_t length = 0; length < payload.size(); ++length) {
    EXPECT_FALSE(codec->decode_into(y, ByteView(payload).first(length)).ok()) << length << " of " << payload.size();
  }
  payload.push_back(std::byte{0});
  EXPECT_FALSE(codec->decode_into(y, payload).ok());
}

TEST_P(EveryCodec, DecodesDamagedPayloadsToFiniteValuesOrAnError) {
  torch::manual_seed(5);
  const auto x = torch::randn({1, 4, 6, 7});
  const auto codec = codec_of(GetParam());
  const Bytes payload = payload_of(*codec, x);
  auto y = torch::empty_like(x);
  for (std::size_t bit = 0; bit<8 * payload.size(); bit += payload.size()> 4000 ? 1001 : 1) {
    Bytes damaged = payload;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const bool accepted = codec->decode_into(y, damaged).ok();
    ASSERT_TRUE(!accepted || torch::isfinite(y).all().item<bool>()) << "bit " << bit;
  }
}

TEST_P(EveryCodec, ReplaysFromItsStateAndLeavesItAloneWhenFrozen) {
  torch::manual_seed(6);
  const auto first = torch::randn({2, 6, 8, 9});
  const auto second = torch::randn({2, 6, 8, 9});
  const auto codec = codec_of(GetParam());
  payload_of(*codec, first);
  const State before = codec->state();

  Bytes frozen;
  ASSERT_TRUE(codec->encode(second, {.frozen = true}, frozen).ok());
  const Bytes once = payload_of(*codec, second);
  EXPECT_EQ(frozen, once);

  const auto replica = codec_of(GetParam());
  replica->set_state(before);
  EXPECT_EQ(payload_of(*replica, second), once);
  codec->set_state(before);
  EXPECT_EQ(payload_of(*codec, second), once);
}

TEST_P(EveryCodec, TravelsInAFrameThatNeedsNothingElse) {
  for (const auto& x : shapes()) {
    const auto codec = codec_of(GetParam());
    Bytes frame;
    ASSERT_TRUE(
        encode_frame(*codec, x, {.step = 3, .micro_batch = 2, .cut = 1, .direction = wire::Direction::kBackward}, {}, nullptr, frame).ok());
    const auto y = decode_frame(frame, {}, {});
    ASSERT_TRUE(y.ok()) << y.error().text();
    EXPECT_TRUE(torch::equal(y.value(), round_trip(GetParam(), x)));
    EXPECT_EQ(y.value().sizes(), x.sizes());
  }
}

TEST_P(EveryCodec, DecodesIntoAWarmBufferOfTheRightShape) {
  const auto x = torch::randn({2, 3, 10, 10});
  const auto codec = codec_of(GetParam());
  Bytes frame;
  ASSERT_TRUE(encode_frame(*codec, x, {}, {}, nullptr, frame).ok());
  const auto warm = torch::empty_like(x);
  const auto y = decode_frame(frame, {}, {}, warm);
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(y.value().data_ptr(), warm.data_ptr());
  const auto other = decode_frame(frame, {}, {}, torch::empty({5}));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().sizes(), x.sizes());
}

TEST(FrameCodec, ChecksThePayloadLengthBeforeItAllocates) {
  // Claims 2^40 values for eight bytes of payload: refused by its length, not by running out of memory.
  wire::FrameHeader header;
  header.tensor = {{std::uint64_t{1} << 40}};
  header.codec = "uniform:8";
  Bytes frame;
  wire::FrameWriter writer(header, frame);
  append(frame, 0.0);
  writer.finish();
  const auto y = decode_frame(frame, {.max_payload_bytes = 100, .max_values = std::uint64_t{1} << 50}, {});
  ASSERT_FALSE(y.ok());
  EXPECT_EQ(y.error().code, ErrorCode::kBadPayload);
}

TEST(FrameCodec, SaysWhenTheSenderFlaggedTheTensor) {
  wire::FrameHeader header;
  header.tensor = {{4}};
  header.codec = "none";
  header.non_finite = true;
  Bytes frame;
  wire::FrameWriter(header, frame).finish();
  const auto y = decode_frame(frame, {}, {});
  ASSERT_FALSE(y.ok());
  EXPECT_EQ(y.error().code, ErrorCode::kNonFinite);
}

TEST(FrameCodec, RefusesMoreDimsThanAFrameHolds) {
  const auto codec = codec_of("none");
  Bytes frame;
  const auto result = encode_frame(*codec, torch::ones({1, 1, 1, 1, 1, 1, 1, 1, 1}), {}, {}, nullptr, frame);
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(frame.empty());
}

}  // namespace
}  // namespace epipe::codec
