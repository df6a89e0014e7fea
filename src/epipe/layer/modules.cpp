#include "epipe/layer/modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace epipe::layer {

torch::Tensor new_weight(torch::IntArrayRef shape) {
  constexpr std::int64_t kMaxValues = std::int64_t{1} << 31;
  std::int64_t room = kMaxValues;
  for (const std::int64_t extent : shape) room /= std::max<std::int64_t>(extent, 1);
  if (room == 0)
    throw std::invalid_argument(fmt::format("a weight of [{}] is too large; at most {} values", fmt::join(shape, ", "), kMaxValues));
  return torch::zeros(shape);
}

Linear::Linear(std::int64_t in, std::int64_t out)
    : weight(register_parameter("weight", new_weight({out, in}))), bias(register_parameter("bias", torch::zeros({out}))) {}

torch::Tensor Linear::forward(const torch::Tensor& x) const { return torch::linear(x, weight, bias); }

Embedding::Embedding(std::int64_t rows, std::int64_t features) : weight(register_parameter("weight", new_weight({rows, features}))) {}

torch::Tensor Embedding::forward(const torch::Tensor& index) const { return torch::embedding(weight, index); }

Conv2d::Conv2d(const ConvShape& shape)
    : weight(register_parameter("weight", new_weight({shape.out, shape.in / shape.groups, shape.kernel, shape.kernel}))), shape_(shape) {
  if (shape.bias) bias = register_parameter("bias", torch::zeros({shape.out}));
}

torch::Tensor Conv2d::forward(const torch::Tensor& x) const {
  return torch::conv2d(x, weight, bias, shape_.stride, shape_.padding, /*dilation=*/1, shape_.groups);
}

// Every output value is a sum over one filter.
double Conv2d::flops(const torch::Tensor& out) const {
  const std::int64_t filter = weight.numel() / weight.size(0);
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(filter);
}

LayerNorm::LayerNorm(std::int64_t features, double eps)
    : weight(register_parameter("weight", torch::ones({features}))),
      bias(register_parameter("bias", torch::zeros({features}))),
      eps_(eps) {}

// In float32 under mixed precision too, as autocast has it on CUDA devices; LibTorch 1.13 has no mixed layer_norm on the CPU.
torch::Tensor LayerNorm::forward(const torch::Tensor& x) const {
  return torch::layer_norm(x.to(torch::kFloat32), {weight.size(0)}, weight, bias, eps_);
}

}  // namespace epipe::layer
