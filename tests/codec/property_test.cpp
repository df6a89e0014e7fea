// The definitions of the codecs, checked against plain implementations and bounds.
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/measure.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

float at(const torch::Tensor& x, std::size_t i) { return x.data_ptr<float>()[i]; }

// Sort quantization word for word: sort, split as equally as possible, quantize each run.
struct SortedDefinition {
  std::vector<kernels::Run> runs;
  std::vector<float> values;  // what each x decodes to
  std::vector<float> scales;  // the largest magnitude in its run, which rounding is relative to

  SortedDefinition(const std::vector<float>& x, int level_bits, int split_bits) : values(x.size()), scales(x.size()) {
    const std::size_t n = x.size();
    const std::size_t k = std::size_t{1} << split_bits;
    const auto levels = static_cast<float>((1 << level_bits) - 1);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
    std::size_t begin = 0;
    for (std::size_t i = 0; i < k && begin < n; ++i) {
      const std::size_t end = begin + n / k + (i < n % k ? 1 : 0);
      const float low = x[order[begin]];
      const float step = (x[order[end - 1]] - low) / levels;
      runs.push_back({low, step});
      for (std::size_t s = begin; s < end; ++s) {
        const float code = step == 0 ? 0 : std::nearbyint((x[order[s]] - low) / step);
        values[order[s]] = code * step + low;
        scales[order[s]] = std::max(std::abs(low), std::abs(x[order[end - 1]]));
      }
      begin = end;
    }
  }
};

struct Split {
  int level_bits;
  int split_bits;
};
constexpr Split kSplits[] = {{1, 0}, {3, 1}, {6, 2}, {9, 3}, {12, 4}, {4, 8}, {1, 15}, {16, 0}};

TEST(Sort, SideDataEqualsARealSortBitForBit) {
  for (const std::size_t n : {1U, 3U, 17U, 1000U, 40'000U}) {
    for (const auto& [name, x] : hard_values(n, 21)) {
      for (const auto& [q, s] : kSplits) {
        const auto codec = codec_of("sort:" + std::to_string(q) + "+" + std::to_string(s));
        Bytes payload;
        if (!codec->encode(tensor_of(x), {}, payload)) continue;  // the range does not fit; conformance names which may
        const SortedDefinition expected(x, q, s);
        for (std::size_t i = 0; i < expected.runs.size(); ++i) {
          const auto run = load<kernels::Run>(payload, i * sizeof(kernels::Run));
          ASSERT_EQ(run.min, expected.runs[i].min) << name << ' ' << n << ' ' << codec->spec() << " run " << i;
          ASSERT_EQ(run.step, expected.runs[i].step) << name << ' ' << n << ' ' << codec->spec() << " run " << i;
        }
      }
    }
  }
}

TEST(Sort, ReconstructionDiffersFromTheDefinitionByRoundingOnly) {
  for (const std::size_t n : {1U, 5U, 1000U, 40'000U}) {
    for (const auto& [name, x] : hard_values(n, 22)) {
      for (const auto& [q, s] : kSplits) {
        const auto codec = codec_of("sort:" + std::to_string(q) + "+" + std::to_string(s));
        Bytes payload;
        if (!codec->encode(tensor_of(x), {}, payload)) continue;
        const auto y = decoded(*codec, payload, {static_cast<std::int64_t>(n)});
        const SortedDefinition expected(x, q, s);
        // Next to the smallest float a step may round to nothing, and a run shrinks to its min.
        const float tiny = static_cast<float>(1 << q) * std::numeric_limits<float>::denorm_min();
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_NEAR(at(y, i), expected.values[i], 3e-7F * expected.scales[i] + tiny)
              << name << ' ' << n << ' ' << codec->spec() << " value " << x[i];
        }
      }
    }
  }
}

TEST(Uniform, ErrsByAtMostHalfAStepAtEveryWidth) {
  for (int bits = 1; bits <= 16; ++bits) {
    for (const auto& [name, x] : hard_values(3000, 31)) {
      const auto codec = codec_of("uniform:" + std::to_string(bits));
      Bytes payload;
      if (!codec->encode(tensor_of(x), {}, payload)) continue;
      const auto run = load<kernels::Run>(payload, 0);
      const auto [low, high] = std::minmax_element(x.begin(), x.end());
      ASSERT_EQ(run.min, *low);
      ASSERT_EQ(run.step, (*high - *low) / static_cast<float>((1 << bits) - 1));
      const auto y = decoded(*codec, payload, {3000});
      // Next to the smallest float a step is rounded by up to half of it, which the top levels add up.
      const double tiny = (1 << bits) * static_cast<double>(std::numeric_limits<float>::denorm_min());
      const double bound = 0.5 * static_cast<double>(run.step) + 2e-7 * std::max(std::abs(*low), std::abs(*high)) + tiny;
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::abs(static_cast<double>(at(y, i)) - x[i]), bound) << name << ' ' << bits;
    }
  }
}

TEST(Quantizers, PackToExactlyTheirBits) {
  const auto x = torch::randn({1001});
  for (int bits = 1; bits <= 16; ++bits) {
    const std::size_t codes = (1001 * static_cast<std::size_t>(bits) + 7) / 8;
    EXPECT_EQ(payload_of(*codec_of("uniform:" + std::to_string(bits)), x).size(), 8 + codes);
    for (int split = 0; split < bits; ++split) {
      const std::string split_text = std::to_string(bits - split) + "+" + std::to_string(split);
      const std::size_t side = 8 * std::min<std::size_t>(std::size_t{1} << split, 1001);
      EXPECT_EQ(payload_of(*codec_of("sort:" + split_text), x).size(), side + codes);
      EXPECT_EQ(payload_of(*codec_of("fast:" + split_text), x).size(), side + codes);
    }
  }
}

TEST(Quantizers, KeepConstantsAndExtremesExactly) {
  for (const std::string spec : {"uniform:4", "sort:3+1", "fast:3+1", "kmeans:2"}) {
    const auto constant = torch::full({50}, -3.25F);
    EXPECT_TRUE(torch::equal(round_trip(spec, constant), constant)) << spec;
  }
  const auto x = torch::randn({5000});
  for (const std::string spec : {"uniform:8", "sort:6+2", "fast:6+2"}) {
    const auto y = round_trip(spec, x);
    EXPECT_EQ(y.min().item<float>(), x.min().item<float>()) << spec;
    EXPECT_NEAR(y.max().item<float>(), x.max().item<float>(), 1e-6) << spec;
  }
}

TEST(Quantizers, TakeValuesNextToTheLargestFloat) {
  const float largest = std::numeric_limits<float>::max();
  for (int bits = 1; bits <= 16; ++bits) {
    const auto x = tensor_of({0.0F, largest / 3, largest});
    const auto y = round_trip("uniform:" + std::to_string(bits), x);
    EXPECT_TRUE(torch::isfinite(y).all().item<bool>()) << bits;
  }
  Bytes out;
  const auto result = codec_of("uniform:8")->encode(tensor_of({-largest, largest}), {}, out);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange);
}

TEST(Half, RefusesWhatItCannotHold) {
  Bytes out;
  const auto result = codec_of("fp16")->encode(tensor_of({1.0F, 70000.0F}), {}, out);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange);
  EXPECT_NE(result.error().message.find("70000"), std::string::npos);
}

TEST(Half, EqualsTorchsOwnConversions) {
  const auto x = (torch::randn({10'000}) * torch::exp(3 * torch::randn({10'000}))).clamp(-65000, 65000);
  EXPECT_TRUE(torch::equal(round_trip("fp16", x), x.to(torch::kFloat16).to(torch::kFloat32)));
  EXPECT_TRUE(torch::equal(round_trip("bf16", x), x.to(torch::kBFloat16).to(torch::kFloat32)));
}

TEST(Fast, ComesCloseToSort) {
  for (const auto& [name, x] : hard_values(200'000, 41)) {
    if (name != "normal" && name != "relu6" && name != "sparse") continue;
    const auto t = tensor_of(x);
    const double sort = relative_error(t, round_trip("sort:6+2", t));
    const double fast = relative_error(t, round_trip("fast:6+2", t));
    EXPECT_LE(fast, 1.2 * sort + 1e-9) << name;
  }
}

// A sample of the first rows only would see nothing of the rest.
TEST(Fast, SeesTheWholeTensor) {
  auto x = torch::cat({torch::randn({1, 100'000}) * 0.01, torch::randn({3, 100'000}) * 10});
  EXPECT_LE(relative_error(x, round_trip("fast:6+2", x)), 1.2 * relative_error(x, round_trip("sort:6+2", x)));
}

TEST(KMeans, ReachesTheOptimumForNormalValues) {
  // Distortion of the optimal scalar quantizer of a unit normal (Max, 1960): 2, 3 and 4 bits.
  const auto x = torch::randn({400'000});
  EXPECT_NEAR(relative_error(x, round_trip("kmeans:2", x)), 0.1175, 0.1175 * 0.03);
  EXPECT_NEAR(relative_error(x, round_trip("kmeans:3", x)), 0.03454, 0.03454 * 0.03);
  EXPECT_NEAR(relative_error(x, round_trip("kmeans:4", x)), 0.009497, 0.009497 * 0.03);
}

TEST(KMeans, IsExactWhenTheDistinctValuesFit) {
  const auto x = torch::randint(-8, 8, {3000}).to(torch::kFloat32);
  EXPECT_TRUE(torch::equal(round_trip("kmeans:4", x), x));
}

TEST(KMeans, TakesTheNearestCentroid) {
  const auto x = torch::randn({2000});
  const auto codec = codec_of("kmeans:3");
  const Bytes payload = payload_of(*codec, x);
  const auto y = decoded(*codec, payload, {2000});
  for (std::size_t i = 0; i < 2000; ++i) {
    float best = std::numeric_limits<float>::infinity();
    for (std::size_t c = 0; c < 8; ++c) best = std::min(best, std::abs(at(x, i) - load<float>(payload, 4 + 4 * c)));
    ASSERT_FLOAT_EQ(std::abs(at(x, i) - at(y, i)), best);
  }
}

TEST(KMeans, KnowsTheExtremesOfALargeTensor) {
  auto x = torch::zeros({1 << 21});
  x[12345] = 1000.0F;
  EXPECT_LT(relative_error(x, round_trip("kmeans:2", x)), 1e-6);
}

TEST(TopK, KeepsTheLargestMagnitudesExactlyAndTheRestAsZero) {
  for (const double ratio : {0.001, 0.1, 0.5, 1.0}) {
    const auto x = torch::randn({7, 101});
    const auto k = std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(x.numel())));
    const auto threshold = std::get<0>(x.abs().flatten().topk(k)).min();
    const auto expected = torch::where(x.abs() >= threshold, x, torch::zeros_like(x));
    EXPECT_TRUE(torch::equal(round_trip(fmt::format("topk:{}", ratio), x), expected)) << ratio;
  }
}

TEST(TopK, BreaksTiesByPosition) {
  const auto y = round_trip("topk:0.5", tensor_of({1, -1, 1, 1, -1, 2}));
  EXPECT_TRUE(torch::equal(y, tensor_of({1, -1, 0, 0, 0, 2})));
}

TEST(TopK, SparseTensorsCostWhatTheyHold) {
  auto x = torch::zeros({100'000});
  for (std::int64_t i = 0; i < 50; ++i) x[i * 1999] = 1.0F + static_cast<float>(i);
  const Bytes payload = payload_of(*codec_of("topk:0.1"), x);
  EXPECT_LE(payload.size(), 9 + (50 * 17 + 7) / 8 + 50 * 4U);
  EXPECT_TRUE(torch::equal(round_trip("topk:0.1", x), x));
  EXPECT_EQ(payload_of(*codec_of("topk:0.1"), torch::zeros({100'000})).size(), 9U);
}

TEST(TopK, SendsPositionsOrABitmapWhicheverIsSmaller) {
  const auto x = torch::randn({1024});  // positions of 10 bits: the bitmap wins from 103 values on
  EXPECT_EQ(payload_of(*codec_of("topk:0.05"), x).size(), 9 + (51 * 10 + 7) / 8 + 51 * 4U);
  EXPECT_EQ(payload_of(*codec_of("topk:0.5"), x).size(), 9 + 128 + 512 * 4U);
}

TEST(LowRank, ErrsByExactlyTheDiscardedSingularValues) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{2, 3, 20, 16}, {3, 18, 30}, {25, 24}}) {
    const auto x = torch::randn(shape);
    const auto s = std::get<1>(at::linalg_svd(x.to(torch::kFloat64), false)).square();
    const double discarded = (s.narrow(-1, 4, s.size(-1) - 4).sum() / s.sum()).item<double>();
    EXPECT_NEAR(relative_error(x, round_trip("lowrank:4", x)), discarded, 1e-5);
  }
}

TEST(LowRank, IsExactForMatricesOfThatRank) {
  const auto x = torch::matmul(torch::randn({2, 3, 30, 4}), torch::randn({2, 3, 4, 40}));
  EXPECT_LT(relative_error(x, round_trip("lowrank:4", x)), 1e-10);
  const auto y = x.view({6, 30, 40});
  EXPECT_LT(relative_error(y, round_trip("power:4", y)), 1e-10);
}

TEST(LowRankAndPower, PassTensorsThatAreCheaperAsTheyAre) {
  const auto maps = torch::randn({2, 5, 7, 7});
  EXPECT_TRUE(torch::equal(round_trip("lowrank:12", maps), maps));
  EXPECT_EQ(payload_of(*codec_of("lowrank:12"), maps).size(), 4U * 2 * 5 * 7 * 7);
  const auto vector = torch::randn({100});
  EXPECT_TRUE(torch::equal(round_trip("power:4", vector), vector));
  EXPECT_EQ(payload_of(*codec_of("power:4>uniform:8"), vector).size(), 8 + 100U);
}

// Q has orthonormal columns, so X' is the projection of X: its error is what lies outside the space, at least the optimum.
TEST(Power, ApproachesTheTruncatedSvdAsItWarmsUp) {
  torch::manual_seed(3);
  const auto decay = torch::exp(-0.3 * torch::arange(24).to(torch::kFloat32));
  const auto x = torch::matmul(torch::randn({4, 24, 24}) * decay, torch::randn({4, 24, 60}));
  const auto s = std::get<1>(at::linalg_svd(x.to(torch::kFloat64), false)).square();
  const double optimum = (s.narrow(-1, 4, 20).sum() / s.sum()).item<double>();
  const auto codec = codec_of("power:4");
  std::vector<double> errors;
  for (int call = 0; call < 5; ++call) errors.push_back(relative_error(x, decoded(*codec, payload_of(*codec, x), x.sizes())));
  for (const double error : errors) EXPECT_GE(error, optimum * (1 - 1e-4));
  EXPECT_LT(errors.back(), errors.front());
  EXPECT_LT(errors.back(), optimum * 1.01);
}

// The singular values overflow, which shows when U is encoded already.
TEST(LowRank, LeavesTheStateOfItsPartsAloneOnAnError) {
  const auto codec = codec_of("lowrank:2>ec:4");
  payload_of(*codec, torch::randn({64, 64}));
  const State before = codec->state();
  ASSERT_FALSE(before.empty());
  Bytes out;
  ASSERT_FALSE(codec->encode(torch::full({64, 64}, 1e38F), {}, out));
  EXPECT_TRUE(out.empty());
  const State after = codec->state();
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, value] : before) EXPECT_TRUE(torch::equal(after.at(name), value)) << name;
}

TEST(Power, StartsColdWhenTheShapeChanges) {
  const auto codec = codec_of("power:2");
  payload_of(*codec, torch::randn({4, 8, 20}));
  const auto last = torch::randn({3, 8, 20});
  EXPECT_EQ(payload_of(*codec, last), payload_of(*codec_of("power:2"), last));
}

TEST(Chains, QuantizeThePartsOfATransform) {
  const auto x = torch::matmul(torch::randn({4, 32, 3}), torch::randn({4, 3, 200}));
  EXPECT_LT(relative_error(x, round_trip("power:3>uniform:8", x)), 1e-3);
  EXPECT_LT(relative_error(x, round_trip("lowrank:3>fp16", x)), 1e-5);
  const auto plain = payload_of(*codec_of("power:3"), x).size();
  const auto packed = payload_of(*codec_of("power:3>uniform:8"), x).size();
  EXPECT_LT(static_cast<double>(packed), 0.26 * static_cast<double>(plain));
}

}  // namespace
}  // namespace epipe::codec
