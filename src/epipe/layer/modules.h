#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "epipe/layer/layer.h"

// What layers are built of: parameters under the names torchvision and PyTorch give them, and one forward each.
namespace epipe::layer {

// y = x W^T + b. weight [out, in], bias [out]
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out);
  torch::Tensor forward(const torch::Tensor& x) const;
  double flops(std::int64_t rows) const { return 2.0 * static_cast<double>(rows * weight.numel()); }

  torch::Tensor weight;
  torch::Tensor bias;
};

// A row of weight for each index. weight [rows, features]
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t rows, std::int64_t features);
  torch::Tensor forward(const torch::Tensor& index) const;

  torch::Tensor weight;
};

struct ConvShape {
  std::int64_t in = 1;
  std::int64_t out = 1;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = false;  // a BatchNorm that follows has its own
};

// weight [out, in / groups, kernel, kernel], bias [out]
class Conv2d : public torch::nn::Module {
 public:
  explicit Conv2d(const ConvShape& shape);
  torch::Tensor forward(const torch::Tensor& x) const;
  double flops(const torch::Tensor& out) const;

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without one

 private:
  ConvShape shape_;
};

// weight [features], bias [features]
class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(std::int64_t features, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;
  torch::Tensor bias;

 private:
  double eps_;
};

// In place, as torchvision does it: for a tensor that was just made, of which nobody else needs the values.
inline torch::Tensor relu(torch::Tensor fresh) { return fresh.relu_(); }
inline torch::Tensor relu6(torch::Tensor fresh) { return torch::hardtanh_(fresh, 0, 6); }

// Normalizes by the micro-batch, as BatchNorm does by the batch, and updates the running statistics once per batch with the
// aggregate of its micro-batches, as if they had been one. weight, bias, running_mean, running_var, num_batches_tracked
class DeferredBatchNorm : public torch::nn::Module, public BatchStatistics {
 public:
  explicit DeferredBatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1);
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at);

  void commit_batch() override;
  void discard_batch() override;
  torch::Tensor batch_totals() const override;  // sums, sums of squares, count
  void set_batch_totals(const torch::Tensor& totals) override;

  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;
  torch::Tensor running_var;
  torch::Tensor num_batches_tracked;

 private:
  void gather(const torch::Tensor& mean, const torch::Tensor& inverse_deviation, std::int64_t count);

  double eps_;
  double momentum_;
  // Of the batch so far, in float64.
  torch::Tensor sum_;
  torch::Tensor square_sum_;
  std::int64_t count_ = 0;
};

}  // namespace epipe::layer
