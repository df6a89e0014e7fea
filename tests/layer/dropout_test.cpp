#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "epipe/layer/random.h"
#include "support/cuda.h"

namespace epipe::layer {
namespace {

ForwardContext context_of(std::vector<std::int64_t> samples) {
  ForwardContext at;
  at.seed = 1;
  at.epoch = 2;
  at.step = 3;
  at.samples = std::move(samples);
  return at;
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

TEST(Dropout, DependsOnSeedEpochStepSampleAndNameOnly) {
  const ForwardContext at = context_of({10, 11, 12, 13});
  const auto mask = dropout_mask({4, 50}, 0.5, at, "layer");
  EXPECT_TRUE(torch::equal(dropout_mask({4, 50}, 0.5, at, "layer"), mask));

  ForwardContext part = at;  // another chunking of the same samples
  part.samples = {12, 13};
  EXPECT_TRUE(torch::equal(dropout_mask({2, 50}, 0.5, part, "layer"), mask.narrow(0, 2, 2)));

  EXPECT_FALSE(torch::equal(dropout_mask({4, 50}, 0.5, at, "other"), mask));
  for (const auto change : {+[](ForwardContext& c) { ++c.seed; }, +[](ForwardContext& c) { ++c.epoch; },
                            +[](ForwardContext& c) { ++c.step; }, +[](ForwardContext& c) { c.samples[0] = 99; }}) {
    ForwardContext other = at;
    change(other);
    EXPECT_FALSE(torch::equal(dropout_mask({4, 50}, 0.5, other, "layer"), mask));
  }
}

// SHA-256 of the seed's 8 bytes and the name; its first 8 bytes, little-endian. One-way: a server that is sent first weights, or a seed of
// its own, computes no other.
TEST(Key, IsTheBeginningOfAHash) {
  EXPECT_EQ(key_of(0, "layer"), 5694331231664378866ULL);
  EXPECT_EQ(key_of(5, "features.0.conv.weight"), 710822557352719485ULL);
  EXPECT_EQ(key_of(~0ULL, "workers"), 11143067996249660039ULL);
}

TEST(Dropout, DrawsTheNumbersItAlwaysDrew) {
  const auto mask = dropout_mask({2, 12}, 0.5, context_of({7, std::int64_t{1} << 40}), "layer");
  const auto expected = torch::tensor({2, 0, 0, 2, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 2, 0, 0, 0, 0, 2, 2}, torch::kFloat32);
  EXPECT_TRUE(torch::equal(mask.flatten(), expected)) << mask;
}

TEST(Dropout, KeepsTheShareAndTheMean) {
  const ForwardContext at = context_of(numbers(100));
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto mask = dropout_mask({100, 2000}, p, at, "layer");
    EXPECT_NEAR(mask.eq(0).to(torch::kFloat64).mean().item<double>(), p, 0.005);
    EXPECT_NEAR(mask.to(torch::kFloat64).mean().item<double>(), 1, 0.03);
  }
}

TEST(Dropout, IsTheIdentityInValidation) {
  ForwardContext at = context_of({1, 2});
  at.training = false;
  const auto x = torch::randn({2, 30});
  EXPECT_TRUE(dropout(x, 0.5, at, "layer").is_same(x));
}

TEST(Dropout, NeedsTheIdOfEverySample) { EXPECT_THROW(dropout(torch::randn({3, 30}), 0.5, context_of({1, 2}), "layer"), c10::Error); }

TEST(Dropout, IsPyTorchsOwnWhereNothingIsPipelined) {
  ForwardContext at = context_of({1, 2});
  const auto x = torch::ones({2, 300});
  const auto own = dropout(x, 0.5, at, "layer");
  at.pipelined = false;
  torch::manual_seed(1);
  const auto y = dropout(x, 0.5, at, "layer");
  torch::manual_seed(1);
  EXPECT_TRUE(torch::equal(y, torch::dropout(x, 0.5, true)));
  EXPECT_FALSE(torch::equal(y, own));
}

// A part of the rows, and of each the first values: as attention in blocks has them.
TEST(Dropout, InPartsDropsWhatTheWholeDrops) {
  torch::manual_seed(1);
  const ForwardContext at = context_of({10, 11});
  const auto x = torch::randn({2, 3, 10, 7});
  for (const auto device : {torch::kCPU, torch::kCUDA}) {
    if (device == torch::kCUDA && !torch::cuda::is_available()) continue;
    const auto here = x.to(device);
    const auto whole = dropout(here, 0.3, at, "layer");
    const auto parts = dropout_in_parts(10, 7, 0.3, device, at, "layer");
    for (const std::int64_t first : {0, 4, 9}) {
      for (const std::int64_t values : {1, 5, 7}) {
        const auto part = [&](const torch::Tensor& all) {
          return all.narrow(2, first, std::min<std::int64_t>(4, 10 - first)).narrow(3, 0, values);
        };
        EXPECT_TRUE(torch::equal(parts.drop(part(here), first), part(whole))) << first << ", " << values;
      }
    }
  }
  EXPECT_THROW(dropout_in_parts(10, 7, 0.3, torch::kCPU, at, "layer").drop(torch::ones({3, 3, 10, 7}), 0), c10::Error);
}

class DropoutOnDevice : public ::testing::TestWithParam<torch::ScalarType> {
 protected:
  void SetUp() override { EPIPE_NEEDS_CUDA(); }
};

TEST_P(DropoutOnDevice, IsThatOfTheCpuForwardAndBackward) {
  torch::manual_seed(1);
  const std::vector<std::vector<std::int64_t>> shapes = {{4, 3, 1000}, {1, 7}, {130, 33}, {300, 2, 5}, {2, 100'001}};
  for (const auto& shape : shapes) {
    const ForwardContext at = context_of(numbers(shape[0]));
    const auto x = torch::randn(shape).to(GetParam()).requires_grad_();
    const auto there = x.detach().to(torch::kCUDA).requires_grad_();
    const auto seed = torch::randn(shape).to(GetParam());
    for (const double p : {0.1, 0.5}) {
      const auto y = dropout(x, p, at, "layer");
      const auto y_there = dropout(there, p, at, "layer");
      EXPECT_TRUE(torch::equal(y_there.cpu(), y)) << x.sizes() << " p " << p;
      const auto gradient = torch::autograd::grad({y}, {x}, {seed})[0];
      EXPECT_TRUE(torch::equal(torch::autograd::grad({y_there}, {there}, {seed.to(torch::kCUDA)})[0].cpu(), gradient)) << x.sizes();
    }
  }
}

TEST_P(DropoutOnDevice, TakesTensorsOfAnyStrides) {
  const ForwardContext at = context_of(numbers(5));
  const auto x = torch::randn({6, 5, 8}).to(GetParam());
  const auto view = x.transpose(0, 1);  // [5, 6, 8]
  EXPECT_TRUE(torch::equal(dropout(view.to(torch::kCUDA), 0.3, at, "layer").cpu(), dropout(view, 0.3, at, "layer")));
  EXPECT_TRUE(torch::equal(dropout(x.to(torch::kCUDA).transpose(0, 1), 0.3, at, "layer").cpu(), dropout(view, 0.3, at, "layer")));

  // Begins where no 16 bytes do.
  const auto behind_one = [](const torch::Tensor& all) { return all.flatten().narrow(0, 1, 5 * 40).view({5, 40}); };
  EXPECT_TRUE(torch::equal(dropout(behind_one(x.to(torch::kCUDA)), 0.3, at, "layer").cpu(), dropout(behind_one(x), 0.3, at, "layer")));
}

INSTANTIATE_TEST_SUITE_P(Types, DropoutOnDevice, ::testing::Values(torch::kFloat32, torch::kFloat16, torch::kBFloat16),
                         [](const auto& type) { return std::string(torch::toString(type.param)); });

}  // namespace
}  // namespace epipe::layer
