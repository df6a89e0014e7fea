// KLT of many features by reflections: what it gains, when it is done, what frames and states hold, damage.
#include "epipe/codec/reflections.h"

#include <gtest/gtest.h>

#include <cmath>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/measure.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

// Features that are mostly combinations of five; the same five every time.
torch::Tensor related_features(std::int64_t n, std::int64_t t, std::int64_t f) {
  torch::manual_seed(77);
  const auto by = torch::randn({5, f});
  torch::manual_seed(n + t + f);
  return torch::matmul(torch::randn({n, t, 5}), by) + 0.2 * torch::randn({n, t, f});
}

bool is_reflected(const Bytes& payload) { return load<PayloadKind>(payload, 0) == PayloadKind::kReflections; }

std::vector<float> values(const torch::Tensor& x) { return {x.data_ptr<float>(), x.data_ptr<float>() + x.numel()}; }

double energy_of(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

Reflections reflections_of(const torch::Tensor& x, std::size_t count) {
  const auto features = static_cast<std::size_t>(x.size(-1));
  const auto axes = leading_axes(values(x), features, count, kernels::best(), nullptr);
  return reflections_to(axes, count, 0.5, static_cast<std::size_t>(x.numel()) / features);
}

TEST(Reflections, KeepTheEnergyAndAreUndoneBackwards) {
  for (const std::int64_t features : {32, 100, 256}) {
    const auto x = values(related_features(4, 32, features));
    const auto own = reflections_of(related_features(4, 32, features), 8);
    std::vector<float> y(x.size());
    own.forward(x, kernels::best(), nullptr, y);
    EXPECT_NEAR(energy_of(y) / energy_of(x), 1, 1e-5);
    own.backward(y, kernels::best(), nullptr, y);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1e-4);
  }
}

TEST(Reflections, PutTheStrongestAxesFirst) {
  const auto x = related_features(8, 64, 256);
  const auto own = reflections_of(x, 8);
  auto y = torch::empty_like(x);
  own.forward(values(x), kernels::best(), nullptr, {y.data_ptr<float>(), static_cast<std::size_t>(y.numel())});
  const auto energy = y.reshape({-1, 256}).square().mean(0);
  EXPECT_GT(energy.narrow(0, 0, 5).sum().item<float>(), 0.98 * energy.sum().item<float>());
}

TEST(Reflections, TravelInAFewHundredBytes) {
  const auto x = related_features(8, 64, 256);
  const auto own = reflections_of(x, 8);
  Bytes bytes;
  write_reflections(own, kernels::best(), bytes);
  EXPECT_LT(bytes.size(), 2048U);
  EXPECT_EQ(bytes.size() % 16, 0U);
  const auto read = read_reflections(spec_of(x), bytes, kernels::best());
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_TRUE(read.value().reflections == own);
  EXPECT_EQ(read.value().bytes, bytes.size());
}

TEST(Reflections, AreReadOnceWhereTheirBytesAreTheSame) {
  const auto x = related_features(8, 64, 256);
  const auto bytes_of = [&](std::size_t count) {
    Bytes bytes;
    write_reflections(reflections_of(x, count), kernels::best(), bytes);
    return bytes;
  };
  const Bytes eight = bytes_of(8);
  const Bytes four = bytes_of(4);
  ReflectionReader reader;
  const auto read = [&](const wire::TensorSpec& tensor, ByteView from) { return reader.read(tensor, from, kernels::best()); };
  Bytes longer = eight;
  longer.resize(eight.size() + 100);
  const auto first = read(spec_of(x), eight);
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_EQ(read(spec_of(x), longer).value().reflections, first.value().reflections);
  EXPECT_EQ(read(spec_of(x), longer).value().bytes, eight.size());
  EXPECT_TRUE(*read(spec_of(x), four).value().reflections == reflections_of(x, 4));
  EXPECT_TRUE(*read(spec_of(x), eight).value().reflections == reflections_of(x, 8));
  EXPECT_FALSE(read({{1, 2, 256}}, eight).ok()) << "more than so few rows can have";
  EXPECT_FALSE(read(spec_of(x), ByteView(eight).first(eight.size() - 16)).ok());
  EXPECT_TRUE(read(spec_of(x), eight).ok()) << "what was refused is not remembered";
}

TEST(FeatureKlt, HalvesTheErrorOfRelatedFeaturesAtLeast) {
  const auto x = related_features(16, 64, 256);
  const auto alone = x.reshape({-1, 1});  // the same values without features
  for (const std::string spec : {"dct:0.5", "dct:1", "auto:1"}) {
    EXPECT_TRUE(is_reflected(payload_of(*codec_of(spec), x))) << spec;
    EXPECT_TRUE(form_name(payload_of(*codec_of(spec), x)).starts_with("klt ")) << spec;
    EXPECT_LT(relative_error(x, round_trip(spec, x)), 0.5 * relative_error(alone, round_trip(spec, alone))) << spec;
  }
}

TEST(FeatureKlt, LeavesUnrelatedFeaturesAndOtherCodecsAlone) {
  torch::manual_seed(4);
  EXPECT_FALSE(is_reflected(payload_of(*codec_of("dct:1"), torch::randn({16, 64, 256}))));
  EXPECT_FALSE(is_reflected(payload_of(*codec_of("ec:1"), related_features(16, 64, 256))));
  EXPECT_FALSE(is_reflected(payload_of(*codec_of("auto:1"), related_features(1, 16, 256)))) << "too few tokens to pay for axes";
  EXPECT_FALSE(is_reflected(payload_of(*codec_of("auto:1"), related_features(16, 64, 16)))) << "too few features";
}

TEST(FeatureKlt, KeepsTheRate) {
  for (const double rate : {0.25, 1.0, 3.0}) {
    const auto codec = codec_of(fmt::format("auto:{}", rate));
    for (int call = 0; call < 4; ++call) {
      const auto x = related_features(8 + call, 64, 256);
      Bytes frame;
      ASSERT_TRUE(encode_frame(*codec, x, {}, {}, nullptr, frame).ok());
      const double got = 8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel());
      EXPECT_LT(got, rate * 1.03) << call;
    }
  }
}

TEST(FeatureKlt, KeepsAnErrorBound) {
  const auto x = related_features(8, 64, 256);
  for (const double error : {0.1, 0.01, 1e-4}) {
    const std::string spec = fmt::format("auto@{}", error);
    EXPECT_TRUE(is_reflected(payload_of(*codec_of(spec), x))) << error;
    EXPECT_LE(relative_error(x, round_trip(spec, x)), error * 1.0001);
  }
}

TEST(FeatureKlt, GivesTheSameFrameOnEveryInstructionSetAndForAnyThreads) {
  for (const auto& x : {related_features(5, 64, 256), related_features(9, 33, 77), related_features(40, 17, 130)}) {
    CodecOptions options;
    options.kernels = &kernels::scalar();
    const auto reference = make_codec("dct:2", options);
    const Bytes payload = payload_of(*reference.value(), x);
    ASSERT_TRUE(is_reflected(payload));
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

TEST(FeatureKlt, GoesOnFromItsState) {
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 40; ++i) tensors.push_back(related_features(16, 40 + i % 7, 64));
  const auto whole = codec_of("auto:2");
  std::vector<Bytes> payloads;
  for (const auto& x : tensors) payloads.push_back(payload_of(*whole, x));
  EXPECT_TRUE(is_reflected(payloads.back()));
  for (const std::size_t stop : {1U, 16U, 17U, 32U, 33U}) {
    const auto first = codec_of("auto:2");
    for (std::size_t i = 0; i < stop; ++i) payload_of(*first, tensors[i]);
    const auto second = codec_of("auto:2");
    second->set_state(first->state());
    for (std::size_t i = stop; i < tensors.size(); ++i) ASSERT_TRUE(payload_of(*second, tensors[i]) == payloads[i]) << stop << ' ' << i;
  }
}

TEST(FeatureKlt, StartsAnewFromAStateThatIsNone) {
  const auto x = related_features(16, 40, 64);
  const auto codec = codec_of("auto:2");
  const Bytes fresh = payload_of(*codec, x);
  ASSERT_TRUE(is_reflected(fresh));
  for (const double wrong : {-1.0, 0.5, 1e300, static_cast<double>(NAN)}) {
    State state = codec->state();
    for (auto& [name, numbers] : state) numbers = torch::full_like(numbers, wrong);
    const auto other = codec_of("auto:2");
    other->set_state(state);
    EXPECT_EQ(payload_of(*other, x), fresh) << wrong;
  }
}

TEST(FeatureKlt, ValidationLeavesItsStateAlone) {
  const auto codec = codec_of("auto:2");
  payload_of(*codec, related_features(16, 40, 64));
  const State before = codec->state();
  ASSERT_TRUE(before.contains("reflections"));
  Bytes out;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(codec->encode(torch::randn({4, 40, 64}), {.frozen = true}, out).ok());
  const State after = codec->state();
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, value] : before) EXPECT_TRUE(torch::equal(after.at(name), value)) << name;
}

// The arithmetic of decoding as docs/wire_format.md has it, bit for bit.
TEST(FeatureKlt, DecodesAsTheWireFormatSays) {
  torch::manual_seed(12);
  const auto codec = codec_of("ec:4");
  const Bytes coded = payload_of(*codec, torch::randn({2, 4, 40}));
  std::vector<std::int32_t> levels(80);
  for (std::size_t c = 1; c < 40; ++c) levels[c] = static_cast<std::int32_t>(c % 7) - 3;
  for (std::size_t c = 2; c < 40; ++c) levels[40 + c] = 5 - static_cast<std::int32_t>(c % 9);
  const std::vector<std::uint8_t> shifts = {4, 3};
  Bytes payload;
  write_reflections({levels, shifts, 40}, kernels::best(), payload);
  payload.insert(payload.end(), coded.begin(), coded.end());
  auto expected = decoded(*codec, coded, {2, 4, 40});
  for (std::int64_t row = 0; row < 8; ++row) {
    float* const x = expected.data_ptr<float>() + row * 40;
    for (std::size_t k = 2; k-- > 0;) {
      std::vector<float> w(40);
      double square = 0;
      for (std::size_t c = 0; c < 40; ++c) {
        w[c] = c == k ? 1.0F : std::ldexp(static_cast<float>(levels[k * 40 + c]), -shifts[k]);
        square += static_cast<double>(w[c]) * w[c];
      }
      std::vector<float> sums(32);
      for (std::size_t c = 0; c < 40; ++c) sums[c % 32] = std::fma(w[c], x[c], sums[c % 32]);
      for (std::size_t half = 16; half > 0; half /= 2) {
        for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
      }
      const float amount = -(static_cast<float>(2 / square) * sums[0]);
      for (std::size_t c = 0; c < 40; ++c) x[c] = std::fma(w[c], amount, x[c]);
    }
  }
  EXPECT_TRUE(torch::equal(decoded(*codec, payload, {2, 4, 40}), expected));
}

class ReflectionAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    x_ = related_features(16, 64, 64);
    payload_ = payload_of(*codec_, x_);
    ASSERT_TRUE(is_reflected(payload_));
  }
  void expect_refused(torch::IntArrayRef shape, const std::string& why) const {
    auto y = torch::empty(shape);
    const auto result = codec_->decode_into(y, payload_);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  }
  std::unique_ptr<Codec> codec_ = codec_of("auto:1");
  torch::Tensor x_;
  Bytes payload_;
};

TEST_F(ReflectionAttack, AShapeWithoutFeatures) {
  expect_refused({16, 64 * 64}, "this shape can have none");
  expect_refused({16, 256, 16}, "this shape can have none");
  expect_refused({16, 64, 8, 8}, "this shape can have none");
}

TEST_F(ReflectionAttack, NoneAtAllOrMoreThanThereMayBe) {
  for (const std::byte count : {std::byte{0}, std::byte{33}, std::byte{255}}) {
    payload_[2] = count;
    expect_refused(x_.sizes(), "expected 1 to 32 reflections");
  }
}

TEST_F(ReflectionAttack, BytesBesideThem) {
  payload_[1] = std::byte{1};
  expect_refused(x_.sizes(), "must be 0");
}

TEST_F(ReflectionAttack, AShiftBeyondTheLargest) {
  payload_[8] = std::byte{21};
  expect_refused(x_.sizes(), "shift is above 20");
}

TEST_F(ReflectionAttack, EntriesTooLargeForTheirShift) {
  payload_[8] = std::byte{0};
  expect_refused(x_.sizes(), "not one that an encoder writes");
}

TEST_F(ReflectionAttack, LengthsBeyondThePayload) {
  payload_[7] = std::byte{0xff};
  expect_refused(x_.sizes(), "ends within its reflections");
}

TEST_F(ReflectionAttack, APayloadThatEndsAnywhere) {
  const Bytes whole = payload_;
  for (std::size_t size = 1; size < whole.size(); size += size < 400 ? 1 : 61) {
    payload_.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    auto y = torch::empty(x_.sizes());
    ASSERT_FALSE(codec_->decode_into(y, payload_).ok()) << size;
  }
}

TEST_F(ReflectionAttack, AnyDamagedByteIsRefusedOrDecodesToFiniteValues) {
  const Bytes whole = payload_;
  for (std::size_t i = 0; i < whole.size(); i += i < 600 ? 1 : 37) {
    payload_ = whole;
    payload_[i] ^= std::byte{0x55};
    auto y = torch::empty(x_.sizes());
    const bool finite = !codec_->decode_into(y, payload_).ok() || torch::isfinite(y).all().item<bool>();
    ASSERT_TRUE(finite) << i;
  }
}

}  // namespace
}  // namespace epipe::codec
