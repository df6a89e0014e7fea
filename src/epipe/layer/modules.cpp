#include "epipe/layer/modules.h"

namespace epipe::layer {

Linear::Linear(std::int64_t in, std::int64_t out)
    : weight(register_parameter("weight", torch::zeros({out, in}))), bias(register_parameter("bias", torch::zeros({out}))) {}

torch::Tensor Linear::forward(const torch::Tensor& x) const { return torch::linear(x, weight, bias); }

Embedding::Embedding(std::int64_t rows, std::int64_t features) : weight(register_parameter("weight", torch::zeros({rows, features}))) {}

torch::Tensor Embedding::forward(const torch::Tensor& index) const { return torch::embedding(weight, index); }

Conv2d::Conv2d(const ConvShape& shape)
    : weight(register_parameter("weight", torch::zeros({shape.out, shape.in / shape.groups, shape.kernel, shape.kernel}))), shape_(shape) {
  if (shape.bias) bias = register_parameter("bias", torch::zeros({shape.out}));
}

torch::Tensor Conv2d::forward(const torch::Tensor& x) const {
  return torch::conv2d(x, weight, bias, shape_.stride, shape_.padding, /*dilation=*/1, shape_.groups);
}

// Every output value is a sum over one filter.
double Conv2d::flops(const torch::Tensor& out) const {
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(weight.numel() / weight.size(0));
}

LayerNorm::LayerNorm(std::int64_t features, double eps)
    : weight(register_parameter("weight", torch::ones({features}))),
      bias(register_parameter("bias", torch::zeros({features}))),
      eps_(eps) {}

// In float32 under mixed precision too, as autocast has it on CUDA devices; LibTorch 1.13 has no mixed layer_norm on the CPU.
torch::Tensor LayerNorm::forward(const torch::Tensor& x) const {
  return torch::layer_norm(x.to(torch::kFloat32), {weight.size(0)}, weight, bias, eps_);
}

DeferredBatchNorm::DeferredBatchNorm(std::int64_t channels, double eps, double momentum)
    : weight(register_parameter("weight", torch::ones({channels}))),
      bias(register_parameter("bias", torch::zeros({channels}))),
      running_mean(register_buffer("running_mean", torch::zeros({channels}))),
      running_var(register_buffer("running_var", torch::ones({channels}))),
      num_batches_tracked(register_buffer("num_batches_tracked", torch::zeros({}, torch::kInt64))),
      eps_(eps),
      momentum_(momentum) {}

torch::Tensor DeferredBatchNorm::forward(const torch::Tensor& x, const ForwardContext& at) {
  if (!at.training) return torch::batch_norm(x, weight, bias, running_mean, running_var, false, momentum_, eps_, false);
  const auto [y, mean, inverse_deviation] = torch::native_batch_norm(x, weight, bias, {}, {}, true, momentum_, eps_);
  if (!at.recompute) gather(mean.detach(), inverse_deviation.detach(), x.numel() / x.size(1));
  return y;
}

void DeferredBatchNorm::gather(const torch::Tensor& mean, const torch::Tensor& inverse_deviation, std::int64_t count) {
  const auto m = mean.to(torch::kFloat64);
  const auto variance = inverse_deviation.to(torch::kFloat64).pow(-2) - eps_;
  if (count_ == 0) {
    sum_ = torch::zeros_like(m);
    square_sum_ = torch::zeros_like(m);
  }
  sum_ += m * count;
  square_sum_ += (variance + m.square()) * count;
  count_ += count;
}

void DeferredBatchNorm::commit_batch() {
  if (count_ == 0) return;
  const torch::NoGradGuard no_grad;
  const auto mean = sum_ / count_;
  const auto biased = (square_sum_ / count_ - mean.square()).clamp_min(0);
  // The running variance is the unbiased one, as in PyTorch.
  const auto unbiased = count_ > 1 ? biased * (static_cast<double>(count_) / static_cast<double>(count_ - 1)) : biased;
  running_mean.mul_(1 - momentum_).add_(mean.to(running_mean.scalar_type()), momentum_);
  running_var.mul_(1 - momentum_).add_(unbiased.to(running_var.scalar_type()), momentum_);
  num_batches_tracked.add_(1);
  count_ = 0;
}

void DeferredBatchNorm::discard_batch() { count_ = 0; }

torch::Tensor DeferredBatchNorm::batch_totals() const {
  if (count_ == 0) return torch::zeros({2 * running_mean.numel() + 1}, torch::kFloat64);
  return torch::cat({sum_.cpu(), square_sum_.cpu(), torch::full({1}, static_cast<double>(count_), torch::kFloat64)});
}

void DeferredBatchNorm::set_batch_totals(const torch::Tensor& totals) {
  const std::int64_t channels = running_mean.numel();
  sum_ = totals.narrow(0, 0, channels).to(running_mean.device(), torch::kFloat64, false, /*copy=*/true);
  square_sum_ = totals.narrow(0, channels, channels).to(running_mean.device(), torch::kFloat64, false, /*copy=*/true);
  count_ = totals[2 * channels].item<std::int64_t>();
}

}  // namespace epipe::layer
