#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "epipe/layer/layer.h"
#include "epipe/layer/lora.h"

// What layers are built of: parameters under the names torchvision and PyTorch give them, and one forward each.
namespace epipe::layer {

// A parameter before its first values. Throws std::invalid_argument where it is far larger than that of any model, before it is
// allocated: shapes may come from a peer.
torch::Tensor new_weight(torch::IntArrayRef shape);

// y = x W^T + b, and what LoRA adds. weight [out, in], bias [out]
class Linear : public torch::nn::Module {
 public:
  struct Options {
    bool bias = true;
    bool input_first = false;  // weight [in, out], as GPT-2 has it
  };
  Linear(std::int64_t in, std::int64_t out) : Linear(in, out, Options()) {}
  Linear(std::int64_t in, std::int64_t out, const Options& options);
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) const;
  double flops(std::int64_t rows) const { return 2.0 * static_cast<double>(rows * weight.numel()); }

  // Two thin matrices beside the weights: lora_A.weight [rank, in], lora_B.weight [out, rank]. `name` is what dropout draws by.
  void add_lora(const LoraConfig& config, const std::string& name);

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without one

 private:
  struct Lora {
    LoraConfig config;
    std::string name;
    torch::Tensor a;  // as they are registered
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
inline torch::Tensor relu(const torch::Tensor& fresh) { return fresh.relu_(); }
inline torch::Tensor relu6(torch::Tensor fresh) { return torch::hardtanh_(fresh, 0, 6); }

}  // namespace epipe::layer
