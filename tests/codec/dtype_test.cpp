// Frames of 16-bit tensors: what float32 codecs make of them, and that `none` keeps them as they are.
#include <gtest/gtest.h>

#include "epipe/codec/frame_codec.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

std::unique_ptr<Codec> made_codec(const std::string& spec) { return std::move(make_codec(spec)).value(); }

torch::Tensor all_finite(torch::ScalarType type) {
  const auto bits = torch::arange(-32768, 32768, torch::kInt32).to(torch::kInt16);
  const auto x = bits.view(type);
  return x.masked_select(torch::isfinite(x.to(torch::kFloat32)));
}

TEST(HalfTensors, NoneKeepsEveryFiniteValueIn16Bits) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto x = all_finite(type);
    Bytes frame;
    ASSERT_TRUE(encode_frame(*made_codec("none"), x, {}, {}, nullptr, frame).ok());
    EXPECT_LE(frame.size(), 2 * static_cast<std::size_t>(x.numel()) + wire::kMaxHeaderBytes);
    const auto y = decode_frame(frame, {}, {});
    ASSERT_TRUE(y.ok()) << y.error().text();
    ASSERT_EQ(y.value().scalar_type(), type);
    EXPECT_TRUE(torch::equal(y.value().view(torch::kInt16), x.view(torch::kInt16))) << "bit by bit";
  }
}

TEST(HalfTensors, EveryCodecGivesThemBackInTheirType) {
  torch::manual_seed(1);
  for (const std::string& spec : testing::every_spec()) {
    for (const auto type : {torch::kHalf, torch::kBFloat16}) {
      const auto x = torch::randn({2, 6, 8, 8}).to(type);
      Bytes frame;
      Bytes reference;
      ASSERT_TRUE(encode_frame(*made_codec(spec), x, {}, {}, nullptr, frame).ok()) << spec;
      ASSERT_TRUE(encode_frame(*made_codec(spec), x.to(torch::kFloat32), {}, {}, nullptr, reference).ok()) << spec;
      const auto y = decode_frame(frame, {}, {}, torch::empty({2, 6, 8, 8}));
      const auto expected = decode_frame(reference, {}, {});
      ASSERT_TRUE(y.ok() && expected.ok()) << spec;
      EXPECT_TRUE(torch::equal(y.value(), expected.value().to(type))) << spec;
    }
  }
}

TEST(HalfTensors, WhatDecodesBeyondTheRangeOfFp16Saturates) {
  Bytes frame;
  ASSERT_TRUE(encode_frame(*made_codec("uniform:8"), torch::full({4}, 1e6F), {}, {}, nullptr, frame).ok());
  const auto header = std::move(wire::read_frame(frame, {})).value();
  wire::FrameView half{header.header, header.payload};
  half.header.dtype = wire::Dtype::kFloat16;
  const auto y = decode_payload(half, {});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(y.value().to(torch::kFloat32).max().item<float>(), 65504);
}

TEST(FrameDecoder, MadeOnceDecodesFramesOfEveryType) {
  for (const std::string spec : {"none", "uniform:8", "ec:4"}) {
    int made = 0;
    const auto counted = [&made](std::string_view text, const CodecOptions& options) {
      ++made;
      return make_codec(text, options);
    };
    const auto decoder = FrameDecoder::make(spec, {}, counted);
    ASSERT_TRUE(decoder.ok());
    for (const auto type : {torch::kFloat32, torch::kHalf, torch::kBFloat16, torch::kFloat32}) {
      Bytes frame;
      ASSERT_TRUE(encode_frame(*made_codec(spec), torch::randn({3, 40}).to(type), {}, {}, nullptr, frame).ok());
      const auto y = decoder.value().decode(wire::read_frame(frame, {}).value());
      ASSERT_TRUE(y.ok()) << spec;
      EXPECT_TRUE(torch::equal(y.value(), decode_frame(frame, {}, {}).value())) << spec;
      EXPECT_EQ(y.value().scalar_type(), type);
    }
    EXPECT_EQ(made, 1) << spec;
  }
}

TEST(FrameDecoder, RefusesAFrameOfAnotherCodec) {
  Bytes frame;
  ASSERT_TRUE(encode_frame(*made_codec("uniform:8"), torch::randn({4}), {}, {}, nullptr, frame).ok());
  const auto y = FrameDecoder::make("uniform:4", {}).value().decode(wire::read_frame(frame, {}).value());
  ASSERT_FALSE(y.ok());
  EXPECT_EQ(y.error().message, "expected a frame by uniform:4, got one by uniform:8");
  EXPECT_FALSE(FrameDecoder::make("uniform:40", {}).ok());
}

TEST(HalfTensors, NanIsAnErrorAndAFlaggedFrameStandsForIt) {
  const auto x = torch::full({2, 3}, std::numeric_limits<float>::quiet_NaN(), torch::kHalf);
  Bytes frame;
  const auto codec = made_codec("none");
  const auto result = encode_frame(*codec, x, {}, {}, nullptr, frame);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNonFinite);
  EXPECT_TRUE(frame.empty());
  encode_non_finite(*codec, x, {.step = 7}, frame);
  const auto view = wire::read_frame(frame, {});
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(view.value().payload.empty());
  EXPECT_EQ(view.value().header.step, 7U);
  const auto stands_for = not_a_number(view.value().header);
  EXPECT_EQ(stands_for.sizes(), x.sizes());
  EXPECT_EQ(stands_for.scalar_type(), torch::kHalf);
}

}  // namespace
}  // namespace epipe::codec
