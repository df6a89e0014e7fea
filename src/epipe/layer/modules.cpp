#include "epipe/layer/modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "epipe/layer/autocast.h"
#include "epipe/layer/random.h"

namespace epipe::layer {

torch::Tensor new_weight(torch::IntArrayRef shape) {
  constexpr std::int64_t kMaxValues = std::int64_t{1} << 31;
  std::int64_t room = kMaxValues;
  for (const std::int64_t extent : shape) room /= std::max<std::int64_t>(extent, 1);
  if (room == 0)
    throw std::invalid_argument(fmt::format("a weight of [{}] is too large; at most {} values", fmt::join(shape, ", "), kMaxValues));
  return torch::zeros(shape);
}

Linear::Linear(std::int64_t in, std::int64_t out, const Options& options)
    : weight(register_parameter("weight", options.input_first ? new_weight({in, out}) : new_weight({out, in}))),
      input_first_(options.input_first) {
  if (options.bias) bias = register_parameter("bias", torch::zeros({out}));
}

torch::Tensor Linear::forward(const torch::Tensor& x, const ForwardContext& at) const {
  const torch::Tensor y = product(x);
  if (!lora_) return y;
  const torch::Tensor thin = torch::linear(dropout(x, lora_->config.dropout, at, lora_->name), lora_->a);
  return y + torch::linear(thin, lora_->b) * lora_->config.scale();
}

torch::Tensor Linear::product(const torch::Tensor& x) const {
  const torch::Tensor w = in_type_of(weight, x);
  return torch::linear(x, input_first_ ? w.t() : w, bias);
}

void Linear::add_lora(const LoraConfig& config, const std::string& name) {
  const std::int64_t in = weight.size(input_first_ ? 0 : 1);
  const std::int64_t out = weight.size(input_first_ ? 1 : 0);
  const auto add = [this](const std::string& key, torch::IntArrayRef shape) {
    return register_module(key, std::make_shared<torch::nn::Module>())->register_parameter("weight", new_weight(shape));
  };
  lora_ = std::make_unique<Lora>(Lora{config, name + ".lora_dropout", {}, {}});
  lora_->a = add("lora_A", {config.rank, in});
  lora_->b = add("lora_B", {out, config.rank});
}

RmsNorm::RmsNorm(std::int64_t features, double eps) : weight(register_parameter("weight", torch::ones({features}))), eps_(eps) {}

torch::Tensor RmsNorm::forward(const torch::Tensor& x) const {
  const torch::Tensor wide = x.to(torch::kFloat32);
  return weight * (wide * torch::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps_));
}

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

// In float32 even under mixed precision, like autocast on CUDA devices; LibTorch 1.13 has no mixed layer_norm on the CPU.
torch::Tensor LayerNorm::forward(const torch::Tensor& x) const {
  return torch::layer_norm(x.to(torch::kFloat32), {weight.size(0)}, weight, bias, eps_);
}

}  // namespace epipe::layer
