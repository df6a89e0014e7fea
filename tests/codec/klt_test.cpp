// KLT of channels before they are coded: what it gains, when it is done, what frames and states hold, damage.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "epipe/codec/channel_basis.h"
#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/measure.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

torch::Tensor square_maps(std::int64_t n, std::int64_t c, std::int64_t edge) {
  const auto x = torch::cumsum(torch::cumsum(torch::randn({n, c, edge, edge}), 2), 3);
  return x - x.mean({2, 3}, true);
}

// Channels that are mostly combinations of three maps.
torch::Tensor related_channels(std::int64_t n, std::int64_t channels, std::int64_t edge) {
  const auto maps = square_maps(n, 3, edge);
  return torch::einsum("ck,nkhw->nchw", {torch::randn({channels, 3}), maps}) + 0.05 * torch::randn({n, channels, edge, edge});
}

bool is_klt(const Bytes& payload) { return form_name(payload).starts_with("klt "); }

double error_of(const std::string& spec, const torch::Tensor& x) { return relative_error(x, round_trip(spec, x)); }

std::vector<double> product(std::span<const float> a, std::span<const float> b, std::size_t n) {
  std::vector<double> out(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < n; ++k) out[i * n + j] += static_cast<double>(a[i * n + k]) * b[k * n + j];
    }
  }
  return out;
}

TEST(ChannelBasis, HasAnInverseAndAxesNearlyAtRightAngles) {
  torch::manual_seed(1);
  for (const std::size_t n : {2U, 3U, 16U, 31U, 64U}) {
    const auto a = torch::randn({static_cast<std::int64_t>(n), 3}, torch::kFloat64);
    const auto moments = (torch::mm(a, a.t()) + 0.01 * torch::eye(static_cast<std::int64_t>(n), torch::kFloat64)).contiguous();
    const auto basis = ChannelBasis::of_moments({moments.data_ptr<double>(), moments.data_ptr<double>() + n * n}, n);
    const auto identity = product(basis.to_channels(), basis.from_channels(), n);
    for (std::size_t i = 0; i < n * n; ++i) EXPECT_NEAR(identity[i], i / n == i % n ? 1 : 0, 1e-5);
    EXPECT_GE(basis.skew(), 1);
    EXPECT_LE(basis.skew(), 1.2) << n;
  }
}

TEST(ChannelBasis, PutsTheStrongestFirst) {
  torch::manual_seed(2);
  const auto x = related_channels(2, 8, 32);
  const auto basis = ChannelBasis::of_moments(channel_moments(x), 8);
  const auto from = basis.from_channels();
  const auto z = torch::einsum("kc,nchw->nkhw", {torch::from_blob(const_cast<float*>(from.data()), {8, 8}), x});
  const auto energy = z.square().mean({0, 2, 3});
  for (std::int64_t k = 0; k + 1 < 3; ++k) EXPECT_GT(energy[k].item<float>(), energy[k + 1].item<float>());
  EXPECT_GT(energy.narrow(0, 0, 3).sum().item<float>(), 100 * energy.narrow(0, 3, 5).sum().item<float>());
}

TEST(ChannelBasis, IsTheChannelsThemselvesWhereThereIsNothingToLearn) {
  for (const double scale : {0.0, 1.0}) {
    std::vector<double> moments(16);
    for (std::size_t i = 0; i < 4; ++i) moments[5 * i] = scale;
    const auto basis = ChannelBasis::of_moments(moments, 4);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(basis.entries()[i], i % 5 == 0 ? 127 : 0);
  }
}

TEST(Klt, HalvesTheErrorOfRelatedChannelsAtLeast) {
  torch::manual_seed(3);
  const auto x = related_channels(8, 32, 64);
  const auto alone = x.reshape({8 * 32, 1, 64, 64});  // the same maps; a single channel has no KLT
  for (const std::string spec : {"dct:0.25", "dct:1", "auto:1"}) {
    EXPECT_TRUE(is_klt(payload_of(*codec_of(spec), x))) << spec;
    EXPECT_LT(error_of(spec, x), 0.5 * error_of(spec, alone)) << spec;
  }
}

TEST(Klt, LeavesUnrelatedChannelsAndOtherCodecsAlone) {
  torch::manual_seed(4);
  EXPECT_FALSE(is_klt(payload_of(*codec_of("dct:1"), square_maps(4, 32, 64))));
  EXPECT_FALSE(is_klt(payload_of(*codec_of("dct:1"), torch::randn({4, 32, 64, 64}))));
  EXPECT_FALSE(is_klt(payload_of(*codec_of("ec:1"), related_channels(4, 32, 64))));
  EXPECT_FALSE(is_klt(payload_of(*codec_of("dct:1"), related_channels(1, 32, 16)))) << "the basis would take an eighth of the rate";
  EXPECT_FALSE(is_klt(payload_of(*codec_of("dct:1"), related_channels(4, 65, 32)))) << "too many channels";
}

TEST(Klt, KeepsTheRate) {
  torch::manual_seed(5);
  for (const double rate : {0.25, 1.0}) {
    const auto codec = codec_of(fmt::format("dct:{}", rate));
    for (int call = 0; call < 4; ++call) {
      const auto x = related_channels(4, 24, 56);
      Bytes frame;
      ASSERT_TRUE(encode_frame(*codec, x, {}, {}, nullptr, frame).ok());
      const double got = 8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel());
      EXPECT_LT(got, rate * (call == 0 ? 1.15 : 1.03)) << call;
      EXPECT_GT(got, rate * (call == 0 ? 0.85 : 0.97)) << call;
    }
  }
}

TEST(Klt, KeepsAnErrorBound) {
  torch::manual_seed(6);
  const auto x = related_channels(4, 32, 64);
  for (const double error : {0.1, 0.01, 1e-4}) {
    const std::string spec = fmt::format("dct@{}", error);
    EXPECT_TRUE(is_klt(payload_of(*codec_of(spec), x)));
    EXPECT_LE(error_of(spec, x), error * 1.0001);
    EXPECT_GE(error_of(spec, x), error * 0.75);
  }
}

TEST(Klt, GivesTheSameFrameOnEveryInstructionSetAndForAnyThreads) {
  torch::manual_seed(7);
  for (const auto& x : {related_channels(3, 5, 33), related_channels(4, 32, 40), related_channels(2, 64, 48)}) {
    CodecOptions options;
    options.kernels = &kernels::scalar();
    const auto reference = make_codec("dct:4", options);
    const Bytes payload = payload_of(*reference.value(), x);
    ASSERT_TRUE(is_klt(payload));
    const auto values = decoded(*reference.value(), payload, x.sizes());
    ThreadPool pool(3);
    for (const kernels::Kernels* kernels : {kernels::avx2(), kernels::avx512()}) {
      if (kernels == nullptr) continue;
      for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
        options.kernels = kernels;
        options.pool = threads;
        const auto codec = make_codec("dct:4", options);
        EXPECT_TRUE(payload_of(*codec.value(), x) == payload) << kernels->name;
        EXPECT_TRUE(torch::equal(decoded(*codec.value(), payload, x.sizes()), values)) << kernels->name;
      }
    }
  }
}

TEST(Klt, GoesOnFromItsState) {
  torch::manual_seed(8);
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 70; ++i) tensors.push_back(related_channels(1, 8, 32));  // beyond the call that tries it again
  const auto whole = codec_of("dct:2");
  std::vector<Bytes> payloads;
  for (const auto& x : tensors) payloads.push_back(payload_of(*whole, x));
  EXPECT_TRUE(is_klt(payloads.back()));
  for (const std::size_t stop : {1U, 2U, 16U, 17U, 33U, 63U, 64U, 65U}) {
    const auto first = codec_of("dct:2");
    for (std::size_t i = 0; i < stop; ++i) payload_of(*first, tensors[i]);
    const auto second = codec_of("dct:2");
    second->set_state(first->state());
    for (std::size_t i = stop; i < tensors.size(); ++i) ASSERT_TRUE(payload_of(*second, tensors[i]) == payloads[i]) << stop << ' ' << i;
  }
}

TEST(Klt, StartsAnewFromAStateThatIsNone) {
  torch::manual_seed(8);
  const auto x = related_channels(2, 8, 32);
  const auto codec = codec_of("dct:2");
  const Bytes fresh = payload_of(*codec, x);
  for (const double wrong : {0.0, -1.0, 1e300, static_cast<double>(NAN)}) {
    State state = codec->state();
    for (auto& [name, numbers] : state) numbers = torch::full_like(numbers, wrong);
    const auto other = codec_of("dct:2");
    other->set_state(state);
    EXPECT_EQ(payload_of(*other, x), fresh) << wrong;
    state = codec->state();
    auto& klt = state.at("klt");
    klt.narrow(0, 2, klt.numel() - 2).zero_();  // no basis
    other->set_state(state);
    EXPECT_LT(relative_error(x, decoded(*other, payload_of(*other, x), x.sizes().vec())), 0.1);
  }
}

TEST(Klt, ValidationLeavesItsStateAlone) {
  torch::manual_seed(9);
  const auto codec = codec_of("dct:2");
  payload_of(*codec, related_channels(2, 8, 32));
  const State before = codec->state();
  Bytes out;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(codec->encode(torch::randn({2, 8, 32, 32}), {.frozen = true}, out).ok());
  const State after = codec->state();
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, value] : before) EXPECT_TRUE(torch::equal(after.at(name), value)) << name;
}

TEST(Klt, StopsWhenChannelsAreNoLongerRelated) {
  torch::manual_seed(10);
  const auto codec = codec_of("dct:2");
  EXPECT_TRUE(is_klt(payload_of(*codec, related_channels(2, 8, 32))));
  Bytes last;
  for (int i = 0; i < 64; ++i) last = payload_of(*codec, square_maps(2, 8, 32));
  EXPECT_FALSE(is_klt(last));
}

TEST(Klt, FollowsChannelsThatTurn) {
  torch::manual_seed(11);
  const auto codec = codec_of("dct:2");
  const auto combined = [](const torch::Tensor& by) {
    return torch::einsum("ck,nkhw->nchw", {by, square_maps(2, 3, 32)}) + 0.05 * torch::randn({2, 16, 32, 32});
  };
  const auto error_in = [&](const torch::Tensor& x) {
    const Bytes payload = payload_of(*codec, x);
    EXPECT_TRUE(is_klt(payload));
    return relative_error(x, decoded(*codec, payload, x.sizes().vec()));
  };
  const auto before = torch::randn({16, 3});
  const auto after = torch::randn({16, 3});
  for (int call = 0; call < 80; ++call) error_in(combined(before));  // past the 64th, where all is tried again; the next is the 128th
  double stale = 0;
  for (int call = 80; call < 96; ++call) stale = error_in(combined(after));
  EXPECT_LT(error_in(combined(after)), 0.5 * stale);
}

// The arithmetic of decoding as docs/wire_format.md has it, bit for bit.
TEST(Klt, DecodesAsTheWireFormatSays) {
  torch::manual_seed(12);
  const auto codec = codec_of("dct:4");
  const Bytes coded = payload_of(*codec, torch::randn({2, 3, 12, 10}));
  ASSERT_EQ(load<PayloadKind>(coded, 0), PayloadKind::kCoded);
  const std::vector<std::int8_t> entries = {127, -3, 50, 17, -128, 90, 1, 64, -77};
  Bytes payload;
  write_basis({entries, 3}, payload);
  payload.insert(payload.end(), coded.begin(), coded.end());
  const auto z = decoded(*codec, coded, {2, 3, 12, 10});
  auto expected = torch::empty_like(z);
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t p = 0; p < 120; ++p) {
        const float* const from = z.data_ptr<float>() + n * 360 + p;
        float sum = static_cast<float>(entries[static_cast<std::size_t>(3 * c)]) / 128 * from[0];
        for (std::int64_t k = 1; k < 3; ++k) {
          sum = std::fma(static_cast<float>(entries[static_cast<std::size_t>(3 * c + k)]) / 128, from[k * 120], sum);
        }
        expected.data_ptr<float>()[n * 360 + c * 120 + p] = sum;
      }
    }
  }
  EXPECT_TRUE(torch::equal(decoded(*codec, payload, {2, 3, 12, 10}), expected));
}

class KltAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(11);
    x_ = related_channels(2, 8, 32);
    payload_ = payload_of(*codec_, x_);
    ASSERT_TRUE(is_klt(payload_));
  }
  void expect_refused(torch::IntArrayRef shape, const std::string& why) const {
    auto y = torch::empty(shape);
    const auto result = codec_->decode_into(y, payload_);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  }
  std::unique_ptr<Codec> codec_ = codec_of("dct:1");
  torch::Tensor x_;
  Bytes payload_;
};

TEST_F(KltAttack, ShapeWithoutChannels) { expect_refused({16, 32, 32}, "has none that can have one"); }
TEST_F(KltAttack, OtherChannels) { expect_refused({4, 4, 32, 32}, "expected a basis of 4 channels, got one of 8"); }
TEST_F(KltAttack, EndsWithinTheBasis) {
  payload_.resize(40);
  expect_refused(x_.sizes(), "ends within the basis");
}
TEST_F(KltAttack, BytesThatAreReserved) {
  for (const std::size_t at : {2U, 3U, 68U, 79U}) {  // 64 entries end at 68, the payload goes on at 80
    const std::byte sound = std::exchange(payload_[at], std::byte{1});
    expect_refused(x_.sizes(), "must be 0");
    payload_[at] = sound;
  }
}
TEST_F(KltAttack, NothingBehindTheBasis) {
  payload_.resize(basis_bytes(8));
  expect_refused(x_.sizes(), "expected a coded payload");
}
TEST_F(KltAttack, AnotherBasisBehindTheBasis) {
  const Bytes basis(payload_.begin(), payload_.begin() + static_cast<std::ptrdiff_t>(basis_bytes(8)));
  payload_.insert(payload_.begin(), basis.begin(), basis.end());
  expect_refused(x_.sizes(), "expected a coded payload");
}
TEST_F(KltAttack, Exponent) {
  payload_[basis_bytes(8) + 8] = std::byte{1};
  expect_refused(x_.sizes(), "no exponent");
}
TEST_F(KltAttack, AnyBasisGivesFiniteValues) {
  std::mt19937 engine(1);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 64; ++i) payload_[4 + i] = static_cast<std::byte>(engine());
    EXPECT_TRUE(torch::isfinite(decoded(*codec_, payload_, x_.sizes())).all().item<bool>());
  }
}
TEST_F(KltAttack, EveryCutIsRefused) {
  for (std::size_t size = 0; size < payload_.size(); size += 1 + size / 16) {
    auto y = torch::empty_like(x_);
    EXPECT_FALSE(codec_->decode_into(y, ByteView(payload_).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace epipe::codec
