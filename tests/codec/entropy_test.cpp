// What the entropy codecs promise beyond the conformance suite: rate, error, cost of simple tensors.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/measure.h"
#include "epipe/codec/token_tables.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

double wire_rate(Codec& codec, const torch::Tensor& x, bool frozen = false) {
  Bytes frame;
  const auto result = encode_frame(codec, x, {}, {.frozen = frozen}, nullptr, frame);
  EXPECT_TRUE(result.ok());
  return 8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel());
}

// Maps with a spectrum that falls off, like those of a network, and a different scale in every channel.
torch::Tensor smooth_maps(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  auto x = torch::randn({n, c, h, w});
  x = torch::cumsum(torch::cumsum(x, 2), 3);
  return (x - x.mean({2, 3}, true)) * torch::exp(torch::randn({1, c, 1, 1})) + torch::randn({n, c, h, w});
}

torch::Tensor heavy_tails(torch::IntArrayRef shape) {
  return torch::randn(shape) / torch::randn({3, torch::numel(torch::empty(shape))}).square().mean(0).sqrt().view(shape) * 1e-4;
}

struct Kind {
  const char* name;
  torch::Tensor (*make)();
};
class Rate : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Tensors, Rate,
                         ::testing::Values(Kind{"maps", [] { return smooth_maps(4, 16, 56, 56); }},
                                           Kind{"small_maps", [] { return smooth_maps(4, 400, 7, 7); }},
                                           Kind{"text",
                                                [] {
                                                  return torch::randn({8, 64, 256}) * torch::exp(torch::randn({256}));
                                                }},
                                           Kind{"gradients",
                                                [] {
                                                  return heavy_tails({4, 16, 56, 56});
                                                }},
                                           Kind{"vector", [] { return torch::randn({150'000}); }}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(Rate, IsMetFromTheFirstFrameOn) {
  torch::manual_seed(1);
  for (const auto& [name, rate] :
       std::vector<std::pair<std::string, double>>{{"ec", 4}, {"ec", 1}, {"dct", 1}, {"dct", 0.25}, {"auto", 0.5}}) {
    const auto codec = codec_of(fmt::format("{}:{}", name, rate));
    for (int call = 0; call < 4; ++call) {
      const double got = wire_rate(*codec, GetParam().make());
      EXPECT_LT(got, rate * (call == 0 ? 1.15 : 1.03)) << name << ' ' << rate << " call " << call;
      EXPECT_GT(got, rate * (call == 0 ? 0.85 : 0.97)) << name << ' ' << rate << " call " << call;
    }
  }
}

TEST_P(Rate, OrTheErrorIs) {
  torch::manual_seed(2);
  for (const std::string name : {"ec", "dct", "auto"}) {
    for (const double error : {0.2, 0.01, 0.0001}) {
      const auto codec = codec_of(fmt::format("{}@{}", name, error));
      for (int call = 0; call < 4; ++call) {
        const auto x = GetParam().make() * (call == 2 ? 1000 : 1);
        const double got = relative_error(x, decoded(*codec, payload_of(*codec, x), x.sizes()));
        EXPECT_LE(got, error * 1.001) << name << '@' << error << " call " << call;
        EXPECT_GE(got, error * 0.85) << name << '@' << error << " call " << call;
      }
    }
  }
}

TEST(Entropy, BeatsFixedRatesAtHalfTheBits) {
  torch::manual_seed(3);
  const auto maps = smooth_maps(4, 16, 56, 56);
  EXPECT_LT(relative_error(maps, round_trip("dct:4", maps)), relative_error(maps, round_trip("uniform:8", maps)));
  const auto gradients = heavy_tails({4, 16, 56, 56});
  EXPECT_LT(relative_error(gradients, round_trip("ec:4", gradients)), relative_error(gradients, round_trip("sort:6+2", gradients)));
}

// Shannon's bound for a normal source is 2^-2R; a uniform quantizer with ideal entropy coding is at 1.42 times it at high rates.
TEST(Entropy, IsCloseToTheBoundForNormalValues) {
  torch::manual_seed(4);
  const auto x = torch::randn({1'000'000});
  for (const double rate : {1.0, 2.0, 4.0}) {
    const auto codec = codec_of(fmt::format("ec:{}", rate));
    const double error = relative_error(x, decoded(*codec, payload_of(*codec, x), x.sizes()));
    EXPECT_LT(error, std::exp2(-2 * rate) * 1.55) << rate;
    EXPECT_GT(error, std::exp2(-2 * rate)) << rate;
  }
}

TEST(Entropy, SpendsAlmostNothingOnTensorsThatAreAlmostNothing) {
  torch::manual_seed(5);
  EXPECT_EQ(payload_of(*codec_of("ec:4"), torch::zeros({100, 1000})).size(), 1U);
  const auto constant = torch::full({8, 64, 28, 28}, -3.25F);
  const auto dct = codec_of("dct:4");
  EXPECT_LT(wire_rate(*dct, constant), 0.3);
  EXPECT_LT(relative_error(constant, decoded(*dct, payload_of(*dct, constant), constant.sizes())), 1e-5);
  auto sparse = torch::zeros({1000, 256});
  sparse.slice(0, 0, 1000, 100) = torch::randn({10, 256});
  for (const std::string spec : {"ec:4", "dct:4", "auto:4"}) {
    const auto codec = codec_of(spec);
    EXPECT_LT(wire_rate(*codec, sparse), 0.3) << spec;
    EXPECT_LT(relative_error(sparse, decoded(*codec, payload_of(*codec, sparse), sparse.sizes())), 1e-5) << spec;
  }
}

// The gradient of a text classifier's head: the first token of each sample. A sample of rows may hold nothing but zeros, or see the values
// only where no row precedes them.
TEST(Entropy, KeepsValuesThatItsSampleDoesNotSee) {
  torch::manual_seed(6);
  for (const std::int64_t tokens : {16, 32, 64, 128}) {
    auto gradient = torch::zeros({16, tokens, 256});
    gradient.select(1, 0) = torch::randn({16, 256}) * 1e-4;
    auto late = torch::zeros({16, tokens, 256});
    late.select(1, tokens - 1) = torch::randn({16, 256});
    for (const auto& x : {gradient, late}) {
      for (const std::string spec : {"ec:2", "ec:1", "auto:2", "ec@0.001"}) {
        const auto codec = codec_of(spec);
        EXPECT_LT(relative_error(x, decoded(*codec, payload_of(*codec, x), x.sizes())), 1.001e-3) << spec << ", " << tokens << " tokens";
        EXPECT_LT(wire_rate(*codec, x), 1.01) << spec << ", " << tokens << " tokens";
      }
      const auto tight = codec_of("ec:0.1");
      EXPECT_LE(wire_rate(*tight, x), 0.105) << tokens << " tokens";
    }
  }
}

// Every error is at most half a step and the dead zone; the step is at least the floor.
TEST(Entropy, KeepsEveryValueWithinAStepOfItself) {
  for (const auto& [name, values] : hard_values(5000, 6)) {
    const auto x = tensor_of(values);
    const auto codec = codec_of("ec:16");
    const auto y = decoded(*codec, payload_of(*codec, x), x.sizes());
    const auto a = x.to(torch::kFloat64);
    const double rms = std::sqrt((a.square().sum() / std::max<double>(1, (a != 0).sum().item<double>())).item<double>());
    const double step = std::max(2e-3 * rms, a.abs().max().item<double>() * 0x1p-20) * 1.001;
    if (rms > 0) {
      EXPECT_LT((a - y.to(torch::kFloat64)).abs().max().item<double>(), step) << name;
    }
  }
}

TEST(Entropy, NeverTakesMuchMoreThanFloats) {
  for (const std::size_t n : {1U, 2U, 3U, 10U, 100U, 1000U, 5000U}) {
    for (const auto& [name, values] : hard_values(n, 7)) {
      for (const std::string spec : {"ec:16", "auto:16", "ec@1e-06", "dct:8"}) {
        EXPECT_LE(payload_of(*codec_of(spec), tensor_of(values).view({1, 1, 1, -1})).size(), 4 * n + 1) << name << ' ' << n << ' ' << spec;
      }
    }
  }
}

TEST(Entropy, HandlesMapsWithEdgesOfAnySize) {
  torch::manual_seed(8);
  for (const std::int64_t h : {1, 2, 5, 7, 8, 9, 13, 17, 31}) {
    for (const std::int64_t w : {1, 3, 8, 11, 16, 23, 33}) {
      const auto x = torch::randn({2, 3, h, w}) + 5;
      for (const std::string spec : {"dct@0.0001", "ec@0.0001"}) {
        EXPECT_LE(relative_error(x, round_trip(spec, x)), 1.001e-4) << h << 'x' << w << ' ' << spec;
      }
    }
  }
}

// The means of blocks as coefficients: times sqrt(h w).
torch::Tensor mean_coefficients(const torch::Tensor& maps, std::int64_t edge) {
  const auto h = std::min(edge, maps.size(2));
  const auto w = std::min(edge, maps.size(3));
  return torch::avg_pool2d(maps.to(torch::kFloat64), {h, w}) * std::sqrt(static_cast<double>(h * w));
}

// A device takes a chunk per warp: few long ones would leave most of it idle.
TEST(Entropy, CutsLargeTensorsIntoChunksEnoughForADevice) {
  torch::manual_seed(8);
  const auto chunks = [](const torch::Tensor& x) {
    const Bytes payload = payload_of(*codec_of("ec:0.25"), x);
    const auto front = read_front(spec_of(x), payload, payload.size());
    EXPECT_TRUE(front.ok());
    return front.value().chunks.size();
  };
  EXPECT_EQ(chunks(torch::randn({1 << 20})), 2);   // 2^19 values, 0.6 % of their bits are states
  EXPECT_EQ(chunks(torch::randn({1 << 21})), 16);  // 2^17, 2.3 %
  EXPECT_EQ(chunks(torch::randn({1 << 23})), 64);
}

// Rounding to the nearest errs by 0.29 of the step that it rounds to: 0.14 of the step with half of it, 0.07 with a quarter.
TEST(BlockMeans, AreKeptAtHalfTheStepAndThoseOfWholeMapsAtAQuarter) {
  torch::manual_seed(14);
  const auto maps = smooth_maps(4, 16, 48, 48) + torch::randn({4, 16, 1, 1}) * 9;
  const auto small_maps = smooth_maps(4, 400, 7, 7) * 3 + 5;
  for (const auto& [x, most] : {std::pair(maps, 0.2), {small_maps, 0.1}}) {
    for (const std::string spec : {"dct:1", "dct:0.5", "dct@0.02"}) {
      const auto codec = codec_of(spec);
      const Bytes payload = payload_of(*codec, x);
      ReflectionReader reader;
      const std::size_t coded = read_fronts(spec_of(x), payload, kernels::best(), reader).value().bytes;
      const auto edge = static_cast<std::int64_t>(load<std::uint8_t>(payload, coded + 1) & 0x1fU);
      const auto error = mean_coefficients(decoded(*codec, payload, x.sizes()) - x, edge);
      EXPECT_LT(error.square().mean().sqrt().item<double>(), most * load<float>(payload, coded + 4)) << spec << ' ' << x.sizes();
    }
  }
}

// Nearly all of the tensor is in the means: an error that took them for twice as large would stop at a quarter of the bound.
TEST(BlockMeans, CountInAFixedErrorAsWhatTheyAre) {
  torch::manual_seed(15);
  const auto x = torch::randn({16, 128, 1, 1}) + 0.001 * torch::randn({16, 128, 8, 8});
  for (const double error : {0.05, 0.001}) {
    const double got = relative_error(x, round_trip(fmt::format("dct@{}", error), x));
    EXPECT_LE(got, error * 1.001);
    EXPECT_GE(got, error * 0.85);
  }
}

// With another shift the same symbols stand for other means, and for nothing else.
TEST(BlockMeans, AreAsLargeAsTheHeadSays) {
  torch::manual_seed(16);
  const auto x = torch::randn({2, 3, 16, 8}) + 1;
  const auto codec = codec_of("dct:4");
  Bytes payload = payload_of(*codec, x);
  ASSERT_EQ(payload[1] & std::byte{0xe0}, std::byte{0x80 | 1 << 5});
  const auto edge = static_cast<std::int64_t>(load<std::uint8_t>(payload, 1) & 0x1fU);
  const auto half = decoded(*codec, payload, x.sizes());
  const auto means = torch::avg_pool2d(half, {edge, 8}).repeat_interleave(edge, 2).repeat_interleave(8, 3);
  for (const auto& [shift, factor] : {std::pair(0U, 2.0), {1U, 1.0}, {2U, 0.5}}) {
    payload[1] = static_cast<std::byte>(0x80U | shift << 5U | static_cast<unsigned>(edge));
    EXPECT_TRUE(torch::allclose(decoded(*codec, payload, x.sizes()), half + (factor - 1) * means, 1e-5, 1e-5)) << shift;
  }
}

// The same planes but for the first, which is exactly 2^shift times as large, and back to the same values.
TEST(BlockMeans, AreScaledExactly) {
  torch::manual_seed(17);
  const auto x = torch::randn({3, 5, 20, 13});
  const std::span<const float> values(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()));
  const auto symbols_and_back = [&](Form form, const kernels::Kernels& k) {
    const Planes planes({{3, 5, 20, 13}}, form, 16);
    Planes::Scratch scratch;
    const auto y = planes.load(planes.chunk(0), values, k, scratch);
    std::vector<float> symbols(y.begin(), y.end());
    std::vector<float> back(values.size());
    symbols.resize(y.size() + kernels::kBatch);
    for (std::size_t i = 0; i < planes.units(); ++i) symbols[i] /= form.mean_gain();
    auto room = symbols;
    for (std::size_t i = 0; i < planes.units(); ++i) room[i] *= form.mean_gain();
    planes.store(planes.chunk(0), room, k, scratch, back);
    return std::pair(symbols, back);
  };
  for (const kernels::Kernels* k : {&kernels::scalar(), &kernels::best()}) {
    for (const std::uint8_t edge : {std::uint8_t{8}, std::uint8_t{16}}) {
      const auto plain = symbols_and_back({edge, Context::kParents, true, 0}, *k);
      for (const std::uint8_t shift : {std::uint8_t{1}, std::uint8_t{2}}) {
        EXPECT_EQ(symbols_and_back({edge, Context::kParents, true, shift}, *k), plain) << k->name << ' ' << static_cast<int>(edge);
      }
    }
  }
}

TEST(Entropy, ScalesTensorsBeyondTheRangeOfItsArithmetic) {
  torch::manual_seed(9);
  const auto x = torch::randn({4, 4, 16, 16});
  for (const float scale : {1e-42F, 1e-38F, 1e-25F, 1e25F, 7e37F}) {
    for (const std::string spec : {"ec@0.01", "dct@0.01"}) {
      const auto scaled = x * scale;
      EXPECT_LE(relative_error(scaled, round_trip(spec, scaled)), 0.0101) << scale << ' ' << spec;
    }
  }
}

TEST(Entropy, AutoTakesWhatIsBestForTheTensor) {
  torch::manual_seed(10);
  const auto error = [](const std::string& spec, const torch::Tensor& x) { return relative_error(x, round_trip(spec, x)); };
  for (const auto& x : {smooth_maps(4, 16, 56, 56), heavy_tails({4, 16, 56, 56}), torch::randn({8, 64, 256})}) {
    EXPECT_LE(error("auto:1", x), 1.06 * std::min(error("ec:1", x), error("dct:1", x))) << x.sizes();
  }
}

TEST(Entropy, SaysWhatItChose) {
  const auto form = [](const std::string& spec, const torch::Tensor& x) {
    Bytes frame;
    EXPECT_TRUE(encode_frame(*codec_of(spec), x, {}, {}, nullptr, frame).ok());
    return chosen_form(wire::read_own_frame(frame).value());
  };
  torch::manual_seed(13);
  EXPECT_TRUE(form("auto:1", smooth_maps(2, 8, 56, 56)).starts_with("dct "));
  EXPECT_EQ(form("dct:1", torch::randn({8, 10, 7, 7})), "dct 8");
  EXPECT_TRUE(form("ec:1", torch::randn({100, 256})).starts_with("rows "));
  EXPECT_EQ(form("ec:1", torch::zeros({100})), "zeros");
  EXPECT_EQ(form("uniform:8", torch::randn({100})), "");
  Bytes flagged;
  encode_non_finite(*codec_of("ec:1"), torch::randn({100}), {}, flagged);
  EXPECT_EQ(chosen_form(wire::read_own_frame(flagged).value()), "");
}

TEST(Entropy, AdaptsItsStepFromCallToCallUnlessFrozen) {
  torch::manual_seed(11);
  const auto codec = codec_of("ec:2");
  EXPECT_TRUE(codec->state().empty());
  wire_rate(*codec, torch::randn({100'000}));
  const auto before = codec->state().at("step").clone();
  wire_rate(*codec, heavy_tails({100'000}), true);
  EXPECT_TRUE(torch::equal(codec->state().at("step"), before));
  wire_rate(*codec, heavy_tails({100'000}));
  EXPECT_LT((codec->state().at("step")[3] / before[3]).item<double>(), 0.9);
}

// Powers of two change no digit: where the remembered step follows the scale, neither does the frame.
TEST(Entropy, TakesTheRateThatComesWithATensor) {
  torch::manual_seed(4);
  const auto x = smooth_maps(8, 16, 32, 32);
  for (const std::string spec : {"auto", "dct:1", "ec:2"}) {
    const auto codec = codec_of(spec);
    for (const double rate : {1.0, 4.0, 0.25, 0.5, 2.0}) {
      Bytes frame;
      ASSERT_TRUE(encode_frame(*codec, x, {}, {.rate = rate}, nullptr, frame)) << spec;
      const double bits = 8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel());
      EXPECT_LE(bits, 1.02 * rate) << spec;
      EXPECT_GE(bits, 0.9 * rate) << spec;
      EXPECT_TRUE(decode_frame(frame, {}, {})) << "a frame is self-contained";
    }
  }
}

TEST(Entropy, ARateOfAFrozenCallLeavesNoTrace) {
  torch::manual_seed(5);
  const auto x = smooth_maps(4, 16, 32, 32);
  const auto disturbed = codec_of("dct:1");
  const auto plain = codec_of("dct:1");
  for (int call = 0; call < 3; ++call) {
    Bytes one;
    Bytes other;
    Bytes ignored;
    ASSERT_TRUE(encode_frame(*disturbed, x, {}, {.frozen = true, .rate = 16}, nullptr, ignored));
    ASSERT_TRUE(encode_frame(*disturbed, x + call, {}, {}, nullptr, one));
    ASSERT_TRUE(encode_frame(*plain, x + call, {}, {}, nullptr, other));
    EXPECT_EQ(one, other);
  }
}

TEST(Entropy, WithoutANumberAndWithoutARateSaysWhatToDo) {
  Bytes out;
  const auto refused = codec_of("auto")->encode(torch::randn({100}), {}, out);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("as in auto:2"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(out.empty());
}

TEST(Entropy, FollowsTheScaleOfATensorAtOnce) {
  torch::manual_seed(14);
  const auto x = smooth_maps(4, 16, 56, 56);
  const auto next = smooth_maps(4, 16, 56, 56);
  for (const std::string spec : {"ec:2", "dct:0.5", "ec@0.01"}) {
    const auto codec = codec_of(spec);
    payload_of(*codec, x);
    const auto after_this = [&](const torch::Tensor& tensor) {
      const auto other = codec_of(spec);
      other->set_state(codec->state());
      return decoded(*other, payload_of(*other, tensor), tensor.sizes());
    };
    const auto expected = after_this(next);
    for (const float scale : {8.0F, 0x1p-20F, 0x1p30F})
      EXPECT_TRUE(torch::equal(after_this(next * scale), expected * scale)) << spec << ' ' << scale;
  }
}

// A state that no encoder wrote: the next call is as a first one.
TEST(Entropy, StartsAnewFromAStateThatCannotBe) {
  torch::manual_seed(15);
  const auto x = smooth_maps(4, 16, 56, 56);
  for (const std::string spec : {"ec:2", "dct@0.01"}) {
    const auto codec = codec_of(spec);
    const Bytes first = payload_of(*codec, x);
    const auto good = codec->state().at("step");
    const double slope = good[6].item<double>();
    for (const double bad : {std::nan(""), -slope, 0.0, slope * std::numeric_limits<double>::infinity()}) {
      auto numbers = good.clone();
      numbers[6] = bad;
      const auto other = codec_of(spec);
      other->set_state({{"step", numbers}});
      EXPECT_TRUE(payload_of(*other, x) == first) << spec << ' ' << bad;
    }
  }
}

TEST(TokenTables, ComeBackFromTheirBytes) {
  std::mt19937 engine(12);
  for (const std::size_t levels : {1U, 8U, 16U}) {
    std::vector<TokenCounts> counts(levels * 5);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      for (std::size_t t = 0; t < 1 + s * 7 % kernels::kTokens; ++t) counts[s][t] = static_cast<std::uint32_t>(engine() % 1000 * (s % 3));
    }
    counts[0][0] = 1;
    const TokenTables tables = fit_tables(counts, std::vector<Shift>(counts.size()), levels);
    Bytes bytes;
    write_tables(tables, levels, bytes);
    ByteReader reader{ByteView(bytes)};
    const auto back = read_tables(reader, counts.size(), levels);
    ASSERT_TRUE(back.ok());
    EXPECT_TRUE(reader.rest().empty());
    EXPECT_EQ(back.value().tables, tables.tables);
    EXPECT_EQ(back.value().table_of, tables.table_of);
    for (const auto& table : tables.tables) EXPECT_EQ(std::accumulate(table.begin(), table.end(), 0U), kernels::kProbabilityScale);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      ByteReader cut{ByteView(bytes).first(length)};
      EXPECT_FALSE(read_tables(cut, counts.size(), levels).ok()) << length;
    }
  }
}

}  // namespace
}  // namespace epipe::codec
