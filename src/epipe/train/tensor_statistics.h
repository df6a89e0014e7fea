#pragma once

#include <torch/types.h>

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace epipe::train {

// Counts in bins of equal width; the first and last count are for values below and above the range.
struct Histogram {
  double low = 0;
  double width = 1;
  std::vector<std::int64_t> counts;

  void add(const torch::Tensor& x);  // float64, one dim
};

// Moments and histograms of tensors of one kind. The bins of values are an eighth of the first tensor's deviation wide.
class TensorStatistics {
 public:
  // Any shape and device. Throws std::runtime_error for values that are not finite.
  void add(const torch::Tensor& x);

  std::int64_t values() const { return values_; }
  std::int64_t zeros() const { return zeros_; }
  double mean() const;
  double deviation() const;
  double kurtosis() const;  // 3 for a normal distribution, 0 for constants
  const Histogram& histogram() const { return histogram_; }
  const Histogram& log2_histogram() const { return log2_histogram_; }
  nlohmann::ordered_json to_json() const;

 private:
  void begin(const torch::Tensor& x);
  double central(int power) const;

  std::int64_t values_ = 0;
  std::int64_t zeros_ = 0;
  double min_ = 0;
  double max_ = 0;
  double shift_ = 0;                    // the powers are summed about this: the first tensor's mean
  double powers_[5] = {0, 0, 0, 0, 0};  // sums of (x - shift)^k
  Histogram histogram_;
  Histogram log2_histogram_;
};

}  // namespace epipe::train
