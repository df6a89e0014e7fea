// KLT of the channels of small maps behind their DCT: what it gains, when it is done, what frames hold, damage.
#include "epipe/codec/spectra.h"

#include <gtest/gtest.h>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/measure.h"
#include "epipe/codec/span.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

// Channels that are mostly combinations of six; the same six every time.
torch::Tensor related_maps(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  torch::manual_seed(78);
  const auto by = torch::randn({c, 6});
  torch::manual_seed(n + c + h + w);
  return (torch::matmul(by, torch::randn({n, 6, h * w})) + 0.2 * torch::randn({n, c, h * w})).view({n, c, h, w}).contiguous();
}

bool has_axes(const Bytes& payload) { return load<PayloadKind>(payload, 0) == PayloadKind::kSpectra; }

TEST(Spectra, HoldFrequenciesOfMapsAndComeBackAsMaps) {
  for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{4, 4}, {7, 7}, {1, 8}, {3, 5}}) {
    const auto x = related_maps(5, 70, h, w);
    const TensorSpec tensor = spec_of(x);
    ASSERT_TRUE(has_spectra(tensor));
    EXPECT_EQ(spectra_of(tensor).dims, (std::vector<std::uint64_t>{static_cast<std::uint64_t>(h * w), 5, 70}));
    auto spectra = torch::empty({h * w, 5, 70});
    to_spectra(tensor, values_of(x), kernels::best(), nullptr, mutable_values_of(spectra));
    const auto means = x.mean({2, 3}) * std::sqrt(static_cast<double>(h * w));
    EXPECT_TRUE(torch::allclose(spectra[0], means, 1e-4, 1e-4));
    EXPECT_NEAR((spectra.square().sum() / x.square().sum()).item<double>(), 1, 1e-5);
    ThreadPool pool(3);
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      auto back = torch::empty_like(x);
      from_spectra(tensor, values_of(spectra), kernels::best(), threads, mutable_values_of(back));
      EXPECT_TRUE(torch::allclose(back, x, 1e-4, 1e-4));
    }
  }
}

TEST(MapKlt, TakesAThirdOffTheErrorOfRelatedChannelsAtLeast) {
  const auto x = related_maps(32, 160, 4, 4);
  const auto alone = x.view({32 * 160, 1, 4, 4});  // the same maps without channels
  for (const std::string spec : {"dct:0.5", "dct:1", "auto:2"}) {
    EXPECT_TRUE(has_axes(payload_of(*codec_of(spec), x))) << spec;
    EXPECT_TRUE(form_name(payload_of(*codec_of(spec), x)).starts_with("dct, klt ")) << spec;
    EXPECT_LT(relative_error(x, round_trip(spec, x)), 0.67 * relative_error(alone, round_trip(spec, alone))) << spec;
  }
}

TEST(MapKlt, KeepsTheMeansOfMapsFinerThanTheRest) {
  const auto x = related_maps(32, 160, 4, 4);
  const auto error = round_trip("dct:1", x) - x;
  const double of_means = (16 * error.mean({2, 3}).square().sum()).item<double>();
  EXPECT_LT(of_means, 0.5 * error.square().sum().item<double>() / 16);
}

TEST(MapKlt, LeavesOtherMapsAndCodecsAlone) {
  torch::manual_seed(4);
  EXPECT_FALSE(has_axes(payload_of(*codec_of("dct:1"), torch::randn({32, 160, 4, 4}))));
  EXPECT_FALSE(has_axes(payload_of(*codec_of("ec:1"), related_maps(32, 160, 4, 4))));
  EXPECT_FALSE(has_axes(payload_of(*codec_of("auto:1"), related_maps(1, 80, 2, 2)))) << "too few values to pay for axes";
  EXPECT_FALSE(has_axes(payload_of(*codec_of("auto:1"), related_maps(32, 64, 4, 4)))) << "few channels have a basis";
  EXPECT_FALSE(has_axes(payload_of(*codec_of("auto:1"), related_maps(16, 96, 8, 8)))) << "larger maps have channel means";
  EXPECT_FALSE(has_axes(payload_of(*codec_of("auto:1"), related_maps(16, 96, 1, 1)))) << "no frequencies";
}

TEST(MapKlt, KeepsTheRate) {
  for (const double rate : {0.25, 1.0, 3.0}) {
    const auto codec = codec_of(fmt::format("auto:{}", rate));
    for (int call = 0; call < 4; ++call) {
      const auto x = related_maps(24 + call, 128, 4, 4);
      Bytes frame;
      ASSERT_TRUE(encode_frame(*codec, x, {}, {}, nullptr, frame).ok());
      EXPECT_LT(8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel()), rate * 1.03) << call;
    }
  }
}

TEST(MapKlt, KeepsAnErrorBound) {
  const auto x = related_maps(32, 160, 4, 4);
  for (const double error : {0.1, 0.01, 1e-4}) {
    const std::string spec = fmt::format("auto@{}", error);
    EXPECT_TRUE(has_axes(payload_of(*codec_of(spec), x))) << error;
    EXPECT_LE(relative_error(x, round_trip(spec, x)), error * 1.0001);
  }
}

TEST(MapKlt, GivesTheSameFrameOnEveryInstructionSetAndForAnyThreads) {
  for (const auto& x : {related_maps(32, 160, 4, 4), related_maps(9, 130, 7, 7), related_maps(70, 65, 3, 2)}) {
    CodecOptions options;
    options.kernels = &kernels::scalar();
    const auto reference = make_codec("dct:2", options);
    const Bytes payload = payload_of(*reference.value(), x);
    ASSERT_TRUE(has_axes(payload));
    const auto expected = decoded(*reference.value(), payload, x.sizes());
    ThreadPool pool(3);
    for (const kernels::Kernels* kernels : {kernels::avx2(), kernels::avx512()}) {
      if (kernels == nullptr) continue;
      for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
        options.kernels = kernels;
        options.pool = threads;
        const auto codec = make_codec("dct:2", options);
        EXPECT_TRUE(payload_of(*codec.value(), x) == payload) << kernels->name;
        EXPECT_TRUE(torch::equal(decoded(*codec.value(), payload, x.sizes()), expected)) << kernels->name;
      }
    }
  }
}

TEST(MapKlt, GoesOnFromItsState) {
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 34; ++i) tensors.push_back(related_maps(24 + i % 5, 96, 4, 4));
  const auto whole = codec_of("auto:1");
  std::vector<Bytes> payloads;
  for (const auto& x : tensors) payloads.push_back(payload_of(*whole, x));
  EXPECT_TRUE(has_axes(payloads.back()));
  for (const std::size_t stop : {1U, 16U, 32U}) {
    const auto first = codec_of("auto:1");
    for (std::size_t i = 0; i < stop; ++i) payload_of(*first, tensors[i]);
    const auto second = codec_of("auto:1");
    second->set_state(first->state());
    for (std::size_t i = stop; i < tensors.size(); ++i) ASSERT_TRUE(payload_of(*second, tensors[i]) == payloads[i]) << stop << ' ' << i;
  }
}

// The maps that the rows behind the head stand for, by the definition: mean frequencies by a quarter, then the inverse DCT.
TEST(MapKlt, DecodesAsTheWireFormatSays) {
  const auto x = related_maps(32, 160, 4, 4);
  const auto codec = codec_of("dct:1");
  const Bytes payload = payload_of(*codec, x);
  ASSERT_TRUE(has_axes(payload));
  const auto rows = decoded(*codec, ByteView(payload).subspan(4), {16, 32, 160});  // a reader of rows takes the quarter
  auto expected = torch::empty_like(x);
  from_spectra(spec_of(x), values_of(rows), kernels::scalar(), nullptr, mutable_values_of(expected));
  EXPECT_TRUE(torch::equal(decoded(*codec, payload, x.sizes()), expected));
}

class SpectraAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    payload_ = payload_of(*codec_, related_maps(32, 160, 4, 4));
    ASSERT_TRUE(has_axes(payload_));
  }
  void expect_refused(const Bytes& payload, torch::IntArrayRef shape, const std::string& why) const {
    auto y = torch::empty(shape);
    const auto result = codec_->decode_into(y, payload);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  }
  std::unique_ptr<Codec> codec_ = codec_of("dct:1");
  Bytes payload_;
};

TEST_F(SpectraAttack, OfAnotherShapeIsRefused) {
  expect_refused(payload_, {32, 64, 4, 10}, "can have none");
  expect_refused(payload_, {16, 32, 160}, "can have none");
  expect_refused(payload_, {32, 80, 4, 8}, "");  // rows of other lengths
}

TEST_F(SpectraAttack, WithBytesBesideTheKindIsRefused) {
  for (const std::size_t at : {1U, 2U, 3U}) {
    Bytes damaged = payload_;
    damaged[at] = std::byte{1};
    expect_refused(damaged, {32, 160, 4, 4}, "must be 0");
  }
}

TEST_F(SpectraAttack, WithoutReflectionsIsRefused) {
  Bytes head;
  write_spectra_head(head);
  expect_refused(head, {32, 160, 4, 4}, "expected reflections");
  Bytes plain = head;
  append_bytes(plain, payload_of(*codec_of("ec:2"), related_maps(32, 160, 4, 4)));
  expect_refused(plain, {32, 160, 4, 4}, "expected reflections");
  append_bytes(head, payload_);
  expect_refused(head, {32, 160, 4, 4}, "expected reflections");
}

TEST_F(SpectraAttack, ThatEndsAnywhereIsRefused) {
  for (std::size_t size = 1; size < payload_.size(); size += size < 200 ? 1 : 97) {
    auto y = torch::empty({32, 160, 4, 4});
    EXPECT_FALSE(codec_->decode_into(y, ByteView(payload_).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace epipe::codec
