#include "epipe/train/task_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

namespace epipe::train {
namespace {

double ratio(double above, double below) { return below == 0 ? 0 : above / below; }

// Ranks from 0; equal values get the mean of their ranks.
std::vector<double> ranks(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && x[order[end]] == x[order[first]]) ++end;
    for (std::size_t i = first; i < end; ++i) ranks[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return ranks;
}

double mean(std::span<const double> x) { return x.empty() ? 0 : std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

template <typename T>
std::vector<T> values_of(const torch::Tensor& tensor, torch::ScalarType type) {
  const auto flat = tensor.to(torch::kCPU, type).reshape({-1}).contiguous();
  return {flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel()};
}

double by_class(const std::string& name, std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected) {
  if (name == "accuracy") return accuracy(predicted, expected);
  if (name == "matthews") return matthews(predicted, expected);
  if (name == "f1") return f1(predicted, expected);
  throw std::invalid_argument(fmt::format("no metric \"{}\" of classes; known are accuracy, matthews and f1", name));
}

double by_value(const std::string& name, std::span<const double> predicted, std::span<const double> expected) {
  if (name == "pearson") return pearson(predicted, expected);
  if (name == "spearman") return spearman(predicted, expected);
  if (name == "mse") return mean_squared_error(predicted, expected);
  throw std::invalid_argument(fmt::format("no metric \"{}\" of values; known are pearson, spearman and mse", name));
}

}  // namespace

double accuracy(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected) {
  double right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == expected[i] ? 1 : 0;
  return ratio(right, static_cast<double>(predicted.size()));
}

// The covariance of the two labelings over the root of their variances (Gorodkin's R_K; for two classes, Matthews' coefficient).
double matthews(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected) {
  std::map<std::int64_t, std::pair<double, double>> counts;  // by class: predicted, expected
  double right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    counts[predicted[i]].first += 1;
    counts[expected[i]].second += 1;
    right += predicted[i] == expected[i] ? 1 : 0;
  }
  const auto n = static_cast<double>(predicted.size());
  double both = 0;
  double of_predicted = 0;
  double of_expected = 0;
  for (const auto& [label, count] : counts) {
    both += count.first * count.second;
    of_predicted += count.first * count.first;
    of_expected += count.second * count.second;
  }
  return ratio(right * n - both, std::sqrt(n * n - of_predicted) * std::sqrt(n * n - of_expected));
}

double f1(std::span<const std::int64_t> predicted, std::span<const std::int64_t> expected) {
  double hits = 0;
  double named = 0;  // predicted 1 plus expected 1
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    hits += predicted[i] == 1 && expected[i] == 1 ? 1 : 0;
    named += (predicted[i] == 1 ? 1 : 0) + (expected[i] == 1 ? 1 : 0);
  }
  return ratio(2 * hits, named);
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const double mean_x = mean(x);
  const double mean_y = mean(y);
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return ratio(xy, std::sqrt(xx) * std::sqrt(yy));
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks(x), ranks(y)); }

double mean_squared_error(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return ratio(sum, static_cast<double>(x.size()));
}

NamedMetrics task_metrics(const data::DataSpec& data, const torch::Tensor& outputs, const torch::Tensor& targets) {
  NamedMetrics metrics;
  if (data.regression) {
    const auto predicted = values_of<double>(outputs, torch::kDouble);
    const auto expected = values_of<double>(targets, torch::kDouble);
    for (const std::string& name : data.metrics) metrics.emplace_back(name, by_value(name, predicted, expected));
    return metrics;
  }
  const auto predicted = values_of<std::int64_t>(outputs.argmax(-1), torch::kLong);
  const auto expected = values_of<std::int64_t>(targets, torch::kLong);
  for (const std::string& name : data.metrics) metrics.emplace_back(name, by_class(name, predicted, expected));
  return metrics;
}

void TaskScore::add(const torch::Tensor& outputs, const torch::Tensor& targets) {
  const auto samples = [](const torch::Tensor& x) { return x.defined() && x.dim() > 0 ? x.size(0) : 0; };
  if (samples(outputs) != samples(targets)) {
    throw std::runtime_error(fmt::format("expected predictions for {} samples, got {}", samples(targets), samples(outputs)));
  }
  outputs_.push_back(outputs.to(torch::kCPU));
  targets_.push_back(targets.to(torch::kCPU));
}

NamedMetrics TaskScore::metrics() const { return task_metrics(data_, torch::cat(outputs_), torch::cat(targets_)); }

}  // namespace epipe::train
