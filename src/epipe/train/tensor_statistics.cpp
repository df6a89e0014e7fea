#include "epipe/train/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace epipe::train {
namespace {

constexpr std::int64_t kBins = 128;  // of values: 8 deviations to each side
constexpr double kLog2Low = -64;     // half octaves from 2^-64 to 2^16
constexpr std::int64_t kLog2Bins = 160;
constexpr std::int64_t kAtOnce = 1 << 20;  // values; bounds the float64 copies

}  // namespace

void Histogram::add(const torch::Tensor& x) {
  if (x.numel() == 0) return;
  const auto bins = static_cast<std::int64_t>(counts.size()) - 2;
  const auto index = ((x - low) / width).floor().clamp(-1, static_cast<double>(bins)).to(torch::kInt64) + 1;
  const auto found = torch::bincount(index, {}, bins + 2);
  const auto* const values = found.data_ptr<std::int64_t>();
  for (std::size_t b = 0; b < counts.size(); ++b) counts[b] += values[b];
}

void TensorStatistics::begin(const torch::Tensor& x) {
  shift_ = x.mean().item<double>();
  const double deviation = (x - shift_).square().mean().sqrt().item<double>();
  min_ = max_ = shift_;
  histogram_.width = deviation > 0 ? deviation / 8 : 1;
  histogram_.low = shift_ - histogram_.width * kBins / 2;
  histogram_.counts.assign(kBins + 2, 0);
  log2_histogram_ = {kLog2Low, 0.5, std::vector<std::int64_t>(kLog2Bins + 2, 0)};
}

void TensorStatistics::add(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().to(torch::kCPU, torch::kFloat32).flatten();
  if (flat.numel() == 0) return;
  for (const auto& part : flat.split(kAtOnce)) {
    const auto x = part.to(torch::kFloat64);
    if (!torch::isfinite(x).all().item<bool>()) throw std::runtime_error("expected finite values, got NaN or Inf");
    if (values_ == 0) begin(x);
    values_ += x.numel();
    min_ = std::min(min_, x.min().item<double>());
    max_ = std::max(max_, x.max().item<double>());
    const auto centred = x - shift_;
    for (int k = 1; k <= 4; ++k) powers_[k] += centred.pow(k).sum().item<double>();
    histogram_.add(x);
    const auto magnitudes = x.masked_select(x != 0).abs();
    zeros_ += x.numel() - magnitudes.numel();
    log2_histogram_.add(magnitudes.log2());
  }
}

double TensorStatistics::mean() const { return values_ == 0 ? 0 : shift_ + powers_[1] / static_cast<double>(values_); }

// Computed from the sums about the shift, which is close to the mean.
double TensorStatistics::central(int power) const {
  if (values_ == 0) return 0;
  const auto n = static_cast<double>(values_);
  const double d = powers_[1] / n;
  if (power == 2) return std::max(0.0, powers_[2] / n - d * d);
  return powers_[4] / n - 4 * d * powers_[3] / n + 6 * d * d * powers_[2] / n - 3 * d * d * d * d;
}

double TensorStatistics::deviation() const { return std::sqrt(central(2)); }

double TensorStatistics::kurtosis() const { return central(2) > 0 ? central(4) / (central(2) * central(2)) : 0; }

nlohmann::ordered_json TensorStatistics::to_json() const {
  return {{"values", values_},
          {"zeros", zeros_},
          {"min", min_},
          {"max", max_},
          {"mean", mean()},
          {"std", deviation()},
          {"kurtosis", kurtosis()},
          {"histogram_low", histogram_.low},
          {"histogram_width", histogram_.width},
          {"histogram", histogram_.counts},
          {"log2_low", log2_histogram_.low},
          {"log2_width", log2_histogram_.width},
          {"log2_histogram", log2_histogram_.counts}};
}

}  // namespace epipe::train
