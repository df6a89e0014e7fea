// What coding adds to a loss, on outputs whose answer is known.
#include "epipe/session/loss_comparisons.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace epipe::session {
namespace {

using SumOfLoss = std::function<torch::Tensor(const torch::Tensor& outputs)>;

pipeline::AuditedLoss audited(const torch::Tensor& outputs, const SumOfLoss& loss, double factor = 1) {
  const auto leaf = outputs.detach().requires_grad_(true);
  const auto sum = loss(leaf);
  (sum * factor).backward();
  return {{leaf.detach()}, sum.detach(), {leaf.grad()}, factor, outputs.size(0)};
}

// Of micro-batch a with coding (`coded`), then without (`plain`); b is the same.
std::vector<PassLosses> compared(const torch::Tensor& coded, const torch::Tensor& plain, const SumOfLoss& loss, double factor = 1) {
  LossComparisons comparisons;
  for (const auto& outputs : {coded, coded, plain, plain}) comparisons.take(audited(outputs, loss, factor));
  return read_losses(comparisons.losses(), 2);
}

SumOfLoss cross_entropy(const torch::Tensor& labels) {
  return [labels](const torch::Tensor& z) { return torch::nll_loss(torch::log_softmax(z, -1), labels, {}, at::Reduction::Sum); };
}

double divergence(const torch::Tensor& z, const torch::Tensor& coded) {
  const auto log_p = torch::log_softmax(z.to(torch::kFloat64), -1);
  const auto log_q = torch::log_softmax(coded.to(torch::kFloat64), -1);
  return (log_p.exp() * (log_p - log_q)).sum(-1).mean().item<double>();
}

TEST(LossComparisons, OfCrossEntropyAreTheDivergenceOfThePredictionsWhateverTheLabels) {
  torch::manual_seed(1);
  const auto plain = 2 * torch::randn({12, 5});
  const auto coded = plain + 0.3 * torch::randn({12, 5});
  for (const double factor : {1.0, 1024.0 / 12}) {
    for (std::int64_t label = 0; label < 5; ++label) {
      const auto loss = cross_entropy(torch::full({12}, label, torch::kInt64));
      const auto passes = compared(coded, plain, loss, factor);
      for (const double added : passes[1].added) EXPECT_NEAR(added, divergence(plain, coded), 1e-5);
      EXPECT_NEAR(passes[0].loss[0], loss(coded).item<double>() / 12, 1e-6);
      EXPECT_NEAR(passes[1].loss[1], loss(plain).item<double>() / 12, 1e-6);
      EXPECT_EQ(passes[0].added[0], 0);
    }
  }
}

TEST(LossComparisons, OfASquaredErrorAreTheSquareOfTheChange) {
  torch::manual_seed(2);
  const auto plain = torch::randn({20, 3});
  const auto coded = plain + torch::randn({20, 3});
  const auto target = torch::randn({20, 3});
  const auto passes = compared(coded, plain, [&](const torch::Tensor& z) { return (z - target).square().sum(); });
  EXPECT_NEAR(passes[1].added[0], (coded - plain).square().sum(-1).mean().item<double>(), 1e-4);
}

// Labels drawn from the predictions, an error that does not know them.
TEST(LossComparisons, HaveTheMeanOfThePlainDifferenceWithAFractionOfItsSpread) {
  torch::manual_seed(3);
  double of_difference = 0;
  double of_added = 0;
  double square_of_difference = 0;
  double square_of_added = 0;
  constexpr int kTrials = 300;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto plain = 2 * torch::randn({32, 10});
    const auto coded = plain + 0.2 * torch::randn({32, 10});
    const auto passes = compared(coded, plain, cross_entropy(torch::multinomial(torch::softmax(plain, -1), 1).squeeze(1)));
    const double difference = passes[0].loss[0] - passes[1].loss[0];
    of_difference += difference / kTrials;
    square_of_difference += difference * difference / kTrials;
    of_added += passes[1].added[0] / kTrials;
    square_of_added += passes[1].added[0] * passes[1].added[0] / kTrials;
  }
  const double spread_of_difference = std::sqrt(square_of_difference - of_difference * of_difference);
  const double spread_of_added = std::sqrt(square_of_added - of_added * of_added);
  EXPECT_NEAR(of_difference, of_added, 4 * spread_of_difference / std::sqrt(kTrials));
  EXPECT_GT(of_added, 0.005);
  EXPECT_LT(spread_of_added, 0.15 * spread_of_difference) << "so it needs a fortieth of the samples";
  EXPECT_LT(spread_of_added, 0.4 * of_added) << "32 samples tell";
}

TEST(LossComparisons, AreByMicroBatchAndPass) {
  LossComparisons comparisons;
  const SumOfLoss loss = [](const torch::Tensor& z) { return z.square().sum(); };
  for (const double z : {3., 5., 2., 1., 2., 0.}) comparisons.take(audited(torch::full({1, 1}, z), loss));
  const auto passes = read_losses(comparisons.losses(), 3);
  EXPECT_EQ(passes[0].loss, (std::array<double, 2>{9, 25}));
  EXPECT_EQ(passes[1].loss, (std::array<double, 2>{4, 1}));
  EXPECT_EQ(passes[1].added, (std::array<double, 2>{1, 16}));
  EXPECT_EQ(passes[2].added, (std::array<double, 2>{0, 1}));
}

TEST(LossComparisons, FromAPeerMustBeThoseOfAnAudit) {
  EXPECT_NO_THROW(read_losses({{1, 2, 3, 4}}, 1));
  EXPECT_THROW(read_losses({{1, 2, 3, 4}}, 2), std::invalid_argument);
  EXPECT_THROW(read_losses({{1, 2, 3}}, 1), std::invalid_argument);
  EXPECT_THROW(read_losses({{1, 2, 3, 1e300}}, 1), std::invalid_argument);
  EXPECT_THROW(read_losses({{1, 2, NAN, 1}}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::session
