#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "epipe/data/data_spec.h"

// Metrics of a task, over the whole validation set. Undefined metrics (one class only, no variance) are 0.
namespace epipe::train {

double accuracy(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected);
// Matthews correlation for any number of classes.
double matthews(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected);
// F1 score of class 1.
double f1(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected);
double pearson(std::span<const double> x, std::span<const double> y);
// The Pearson correlation of the ranks; equal values get the mean of their ranks.
double spearman(std::span<const double> x, std::span<const double> y);
double mean_squared_error(std::span<const double> x, std::span<const double> y);

using NamedMetrics = std::vector<std::pair<std::string, double>>;
// The metrics listed by the data, in its order, for the model's outputs [N, classes] and the targets. Throws std::invalid_argument for
// names other than accuracy, matthews, f1, pearson, spearman and mse.
NamedMetrics task_metrics(const data::DataSpec& data, const torch::Tensor& outputs, const torch::Tensor& targets);

// Collects a validation set batch by batch.
class TaskScore {
 public:
  explicit TaskScore(data::DataSpec data) : data_(std::move(data)) {}
  void add(const torch::Tensor& outputs, const torch::Tensor& targets);
  NamedMetrics metrics() const;

 private:
  data::DataSpec data_;
  std::vector<torch::Tensor> outputs_;
  std::vector<torch::Tensor> targets_;
};

}  // namespace epipe::train
