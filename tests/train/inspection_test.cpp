// Statistics of tensors, and the part of a data set.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>

#include "epipe/data/subset.h"
#include "epipe/train/tensor_statistics.h"

namespace epipe::train {
namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

TEST(TensorStatistics, CountsEveryValueOnce) {
  torch::manual_seed(1);
  TensorStatistics statistics;
  std::int64_t values = 0;
  for (const double scale : {1.0, 100.0, 1e-30, 0.0}) {
    const auto x = torch::randn({7, 11, 3}) * scale;
    statistics.add(x.transpose(0, 2));
    values += x.numel();
  }
  EXPECT_EQ(statistics.values(), values);
  EXPECT_EQ(total(statistics.histogram().counts), values);
  EXPECT_EQ(total(statistics.log2_histogram().counts) + statistics.zeros(), values);
  EXPECT_GE(statistics.zeros(), 7 * 11 * 3);
  EXPECT_GT(statistics.histogram().counts.front() + statistics.histogram().counts.back(), 0) << "100 deviations are out of the bins";
}

TEST(TensorStatistics, MomentsAreThoseOfAllValuesTogether) {
  torch::manual_seed(2);
  const auto a = torch::randn({1000}, torch::kFloat32) * 3 + 5;
  const auto b = torch::rand({500}, torch::kFloat32) - 2;
  TensorStatistics statistics;
  statistics.add(a);
  statistics.add(b);
  const auto all = torch::cat({a, b}).to(torch::kFloat64);
  const auto centred = all - all.mean();
  const double variance = centred.square().mean().item<double>();
  EXPECT_NEAR(statistics.mean(), all.mean().item<double>(), 1e-9);
  EXPECT_NEAR(statistics.deviation(), std::sqrt(variance), 1e-9);
  EXPECT_NEAR(statistics.kurtosis(), centred.pow(4).mean().item<double>() / (variance * variance), 1e-7);
}

TEST(TensorStatistics, ConstantsHaveNoSpreadAndNaNIsRefused) {
  TensorStatistics statistics;
  statistics.add(torch::full({10}, 2.0F));
  EXPECT_EQ(statistics.deviation(), 0);
  EXPECT_EQ(statistics.kurtosis(), 0);
  EXPECT_EQ(total(statistics.histogram().counts), 10);
  EXPECT_THROW(statistics.add(torch::full({2}, std::numeric_limits<float>::quiet_NaN())), std::runtime_error);
}

TEST(PartOfTheData, HoldsTheSamplesOfEverySmallerPartUnderTheirOwnIds) {
  const auto ids = [](double share) {
    const auto splits = data::part_of(data::make_synthetic(data::DataSpec::Kind::kImages, 3), share);
    std::vector<std::int64_t> all(static_cast<std::size_t>(splits.train->size()));
    std::iota(all.begin(), all.end(), 0);
    const auto batch = splits.train->batch(all);
    return std::set<std::int64_t>(batch.samples.begin(), batch.samples.end());
  };
  const auto whole = ids(1);
  const auto half = ids(0.5);
  const auto tenth = ids(0.1);
  EXPECT_EQ(2 * half.size(), whole.size());
  EXPECT_TRUE(std::includes(half.begin(), half.end(), tenth.begin(), tenth.end()));
  EXPECT_GT(*tenth.rbegin(), static_cast<std::int64_t>(whole.size()) / 2) << "spread over the whole set";
}

TEST(PartOfTheData, HasAtLeastOneSampleAndRefusesOtherShares) {
  EXPECT_EQ(data::part_of(data::make_synthetic(data::DataSpec::Kind::kImages, 3), 1e-9).train->size(), 1);
  for (const double share : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(data::part_of(data::make_synthetic(data::DataSpec::Kind::kImages, 3), share), std::invalid_argument);
  }
}

}  // namespace
}  // namespace epipe::train
