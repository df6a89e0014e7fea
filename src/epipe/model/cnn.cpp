// cnn: four convolutions, each with BatchNorm and ReLU, then a pooled classifier.
#include <fmt/format.h>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/modules.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

// [B, in, H, W] -> [B, out, H / stride, W / stride]
class ConvBlock final : public layer::Layer {
 public:
  ConvBlock(const std::string& name, const layer::ConvShape& shape)
      : Layer(name),
        conv_(register_module("conv", std::make_shared<layer::Conv2d>(shape))),
        norm_(register_module("bn", std::make_shared<layer::DeferredBatchNorm>(shape.out))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override { return {layer::relu(norm_->forward(conv_->forward(in[0]), at))}; }
  double flops(const Tensors&, const Tensors& out) const override {
    return conv_->flops(out[0]) + 4.0 * static_cast<double>(out[0].numel());
  }

 private:
  std::shared_ptr<layer::Conv2d> conv_;  // shared with the module tree, which owns them
  std::shared_ptr<layer::DeferredBatchNorm> norm_;
};

// [B, C, H, W] -> [B, classes]
class PooledClassifier final : public layer::Layer {
 public:
  PooledClassifier(const std::string& name, std::int64_t channels, std::int64_t classes)
      : Layer(name), linear_(register_module("linear", std::make_shared<layer::Linear>(channels, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override { return {linear_->forward(in[0].mean({2, 3}), at)}; }
  double flops(const Tensors& in, const Tensors&) const override {
    return static_cast<double>(in[0].numel()) + linear_->flops(in[0].size(0));
  }

 private:
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree
};

}  // namespace

Architecture make_cnn(const data::DataSpec& data, const std::string&) {
  require_images("cnn", data);
  const std::int64_t channels = data.shape[0];
  return {.layers = {
              named_maker<ConvBlock>("features.0", layer::ConvShape{.in = channels, .out = 16, .padding = 1}),
              named_maker<ConvBlock>("features.1", layer::ConvShape{.in = 16, .out = 32, .stride = 2, .padding = 1}),
              named_maker<ConvBlock>("features.2", layer::ConvShape{.in = 32, .out = 32, .padding = 1}),
              named_maker<ConvBlock>("features.3", layer::ConvShape{.in = 32, .out = 64, .stride = 2, .padding = 1}),
              named_maker<PooledClassifier>("classifier", 64, data.classes),
          }};
}

}  // namespace epipe::model
