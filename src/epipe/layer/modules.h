#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "epipe/layer/layer.h"
#include "epipe/layer/lora.h"

// Building blocks of layers: parameters with the names of torchvision and PyTorch, and one forward each.
namespace epipe::layer {

// An uninitialized parameter. Throws std::invalid_argument, before allocating it, if it is far larger than in any real model: shapes may
// come from a peer.
torch::Tensor new_weight(torch::IntArrayRef shape);

// y = x W^T + b, plus LoRA's product. weight [out, in], bias [out]
class Linear : public torch::nn::Module {
 public:
  struct Options {
    bool bias = true;
    bool input_first = false;  // weight [in, out], as in GPT-2
  };
  Linear(std::int64_t in, std::int64_t out) : Linear(in, out, Options()) {}
  Linear(std::int64_t in, std::int64_t out, const Options& options);
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) const;
  double flops(std::int64_t rows) const { return 2.0 * static_cast<double>(rows * weight.numel()); }

  // Adds two thin matrices: lora_A.weight [rank, in], lora_B.weight [out, rank]. Dropout draws by `name`.
  void add_lora(const LoraConfig& config, const std::string& name);

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without one

 private:
  struct Lora {
    LoraConfig config;
    std::string name;
    torch::Tensor a;  // the registered parameters
    torch::Tensor b;
  };
  torch::Tensor product(const torch::Tensor& x) const;

  bool input_first_;
  std::unique_ptr<Lora> lora_;  // null: none
};

// x / rms(x) * weight over the last dim, in float32. weight [features]
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t features, double eps);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;

 private:
  double eps_;
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
  bool bias = false;  // usually a BatchNorm with its own bias follows
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

// In place, as in torchvision: for a newly made tensor whose values nobody else needs.
inline torch::Tensor relu(const torch::Tensor& fresh) { return fresh.relu_(); }
inline torch::Tensor relu6(torch::Tensor fresh) { return torch::hardtanh_(fresh, 0, 6); }

}  // namespace epipe::layer
