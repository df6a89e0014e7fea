#pragma once

#include <memory>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/modules.h"

namespace epipe::model {

// A convolution and its BatchNorm under the names an nn.Sequential gives them: "0.weight", "1.weight", "1.running_mean".
class ConvNorm final : public torch::nn::Module {
 public:
  explicit ConvNorm(const layer::ConvShape& shape)
      : conv_(register_module("0", std::make_shared<layer::Conv2d>(shape))),
        norm_(register_module("1", std::make_shared<layer::DeferredBatchNorm>(shape.out))) {}

  torch::Tensor forward(const torch::Tensor& x, const layer::ForwardContext& at) { return norm_->forward(conv_->forward(x), at); }
  double flops(const torch::Tensor& out) const { return conv_->flops(out) + 4.0 * static_cast<double>(out.numel()); }
  // The same, for an output of `positions` positions (samples x height x width).
  double flops(std::int64_t positions) const {
    return 2.0 * static_cast<double>(positions * (conv_->weight.numel() + 2 * norm_->weight.numel()));
  }

 private:
  std::shared_ptr<layer::Conv2d> conv_;  // shared with the module tree, which owns them
  std::shared_ptr<layer::DeferredBatchNorm> norm_;
};

// Samples x height x width of [B, C, H, W].
inline std::int64_t positions(const torch::Tensor& x) { return x.numel() / x.size(1); }

}  // namespace epipe::model
