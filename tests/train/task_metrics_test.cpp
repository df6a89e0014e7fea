// Metrics against values computed by hand.
#include "epipe/train/task_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "epipe/train/loss.h"

namespace epipe::train {
namespace {

using Classes = std::vector<std::int64_t>;
using Values = std::vector<double>;

TEST(TaskMetrics, OfClasses) {
  // Of eight: 3 true positives, 1 false positive, 2 false negatives, 2 true negatives.
  const Classes expected = {1, 1, 1, 1, 1, 0, 0, 0};
  const Classes predicted = {1, 1, 1, 0, 0, 1, 0, 0};
  EXPECT_DOUBLE_EQ(accuracy(predicted, expected), 5.0 / 8);
  EXPECT_DOUBLE_EQ(f1(predicted, expected), 6.0 / 9);                                               // 2 TP / (2 TP + FP + FN)
  EXPECT_NEAR(matthews(predicted, expected), (3 * 2 - 1 * 2) / std::sqrt(4.0 * 5 * 3 * 4), 1e-15);  // Matthews' own formula
  EXPECT_DOUBLE_EQ(matthews(expected, expected), 1);
  EXPECT_DOUBLE_EQ(matthews(Classes{0, 1, 0, 1}, Classes{1, 0, 1, 0}), -1);
}

TEST(TaskMetrics, OfThreeClasses) {
  // Confusion matrix (expected by predicted) 2 0 0 / 1 1 0 / 0 0 2: c = 5, s = 6, p = (3, 1, 2), t = (2, 2, 2).
  const Classes expected = {0, 0, 1, 1, 2, 2};
  const Classes predicted = {0, 0, 0, 1, 2, 2};
  EXPECT_NEAR(matthews(predicted, expected), (5 * 6 - 12) / std::sqrt((36.0 - 14) * (36 - 12)), 1e-15);
}

TEST(TaskMetrics, OfValues) {
  const Values x = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(pearson(x, Values{2, 4, 6, 8}), 1);
  EXPECT_DOUBLE_EQ(pearson(x, Values{8, 6, 4, 2}), -1);
  // Means 2.5 and 2: the products of the deviations sum up to 5, their squares to 5 and 6.
  EXPECT_NEAR(pearson(x, Values{1, 1, 2, 4}), 5 / std::sqrt(5.0 * 6), 1e-15);
  EXPECT_DOUBLE_EQ(spearman(x, Values{1, 10, 100, 1000}), 1);
  // Ranks of (1, 1, 2, 4) are (0.5, 0.5, 2, 3): products 4.5, squares 5 and 4.5.
  EXPECT_NEAR(spearman(x, Values{1, 1, 2, 4}), 4.5 / std::sqrt(5 * 4.5), 1e-15);
  EXPECT_DOUBLE_EQ(mean_squared_error(x, Values{1, 2, 3, 6}), 1);
}

TEST(TaskMetrics, WhatIsNotDefinedIsZero) {
  EXPECT_EQ(matthews(Classes{1, 1, 1}, Classes{0, 1, 1}), 0);
  EXPECT_EQ(f1(Classes{0, 0}, Classes{0, 0}), 0);
  EXPECT_EQ(pearson(Values{1, 1}, Values{1, 2}), 0);
  EXPECT_EQ(accuracy({}, {}), 0);
}

TEST(TaskMetrics, AreThoseTheDataAsksFor) {
  data::DataSpec spec;
  spec.metrics = {"matthews", "accuracy"};
  TaskScore score(spec);
  score.add(torch::tensor({{2.0F, 1.0F}, {0.0F, 1.0F}}), torch::tensor({0, 1}, torch::kInt64));
  score.add(torch::tensor({{2.0F, 1.0F}, {0.0F, 1.0F}}), torch::tensor({0, 0}, torch::kInt64));
  const NamedMetrics metrics = score.metrics();
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].first, "matthews");
  EXPECT_NEAR(metrics[0].second, (1 * 2 - 1 * 0) / std::sqrt(2.0 * 1 * 3 * 2), 1e-15);
  EXPECT_EQ(metrics[1], (std::pair<std::string, double>("accuracy", 0.75)));
  spec.metrics = {"bleu"};
  EXPECT_THROW(task_metrics(spec, torch::zeros({1, 2}), torch::zeros({1}, torch::kInt64)), std::invalid_argument);
}

TEST(Loss, IsTheSquaredErrorForValues) {
  data::DataSpec spec;
  spec.regression = true;
  const auto result = make_loss(spec)({torch::tensor({{1.0F}, {4.0F}})}, torch::tensor({{0.0F}, {2.0F}}));
  EXPECT_FLOAT_EQ(result.sum.item<float>(), 5);
  EXPECT_TRUE(torch::equal(result.predictions, torch::tensor({{1.0F}, {4.0F}})));
  const auto classes = make_loss({})({torch::tensor({{0.0F, 0.0F}, {0.0F, 3.0F}})}, torch::tensor({0, 1}, torch::kInt64));
  EXPECT_NEAR(classes.sum.item<float>(), std::log(2.0) + std::log(1 + std::exp(-3.0)), 1e-6);
  EXPECT_EQ(classes.correct.item<double>(), 2);
}

}  // namespace
}  // namespace epipe::train
