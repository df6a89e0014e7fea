// vgg13: ten convolutions, each with its ReLU and the pooling after it, and three fully connected layers, under torchvision's names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "epipe/layer/initialization.h"
#include "epipe/layer/modules.h"
#include "epipe/layer/random.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

constexpr double kVggDropout = 0.5;
constexpr std::int64_t kSmallest = 32;
constexpr std::int64_t kPooled = 7;
constexpr std::int64_t kVggHidden = 4096;
constexpr layer::Initialization kVggInitialization{
    .convolution = layer::Initialization::Rule::kFanOut, .linear = layer::Initialization::Rule::kNormal, .deviation = 0.01};

// [B, in, H, W] -> [B, out, H, W], or half of H and W
class VggConv final : public layer::Layer {
 public:
  VggConv(int index, std::int64_t in, std::int64_t out, bool pool)
      : Layer(fmt::format("features.{}", index), "features."),
        conv_(register_module(std::to_string(index),
                              std::make_shared<layer::Conv2d>(layer::ConvShape{.in = in, .out = out, .padding = 1, .bias = true}))),
        pool_(pool) {}

  Tensors forward(const Tensors& in, const ForwardContext&) override {
    const auto x = layer::relu(conv_->forward(in[0]));
    return {pool_ ? torch::max_pool2d(x, 2, 2) : x};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return 2.0 * static_cast<double>(in[0].numel() / in[0].size(1) * (conv_->weight.numel() + conv_->weight.size(0)));
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kVggInitialization); }

 private:
  std::shared_ptr<layer::Conv2d> conv_;  // shared with the module tree, which owns it
  bool pool_;
};

// [B, ...] -> [B, out]. The first one pools to 7 x 7, the last one is without ReLU and dropout.
class LinearLayer final : public layer::Layer {
 public:
  LinearLayer(int index, std::int64_t in, std::int64_t out)
      : Layer(fmt::format("classifier.{}", index), "classifier."),
        index_(index),
        linear_(register_module(std::to_string(index), std::make_shared<layer::Linear>(in, out))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto x = index_ == 0 ? torch::adaptive_avg_pool2d(in[0], {kPooled, kPooled}).flatten(1) : in[0];
    const auto y = linear_->forward(x, at);
    if (index_ == kLast) return {y};
    return {layer::dropout(layer::relu(y), kVggDropout, at, fmt::format("classifier.{}", index_ + 2))};
  }
  double flops(const Tensors& in, const Tensors&) const override { return linear_->flops(in[0].size(0)); }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kVggInitialization); }

  static constexpr int kLast = 6;

 private:
  int index_;
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree
};

LayerMaker conv_maker(int index, std::int64_t in, std::int64_t out, bool pool) {
  return maker<VggConv>(fmt::format("features.{}", index), index, in, out, pool);
}
LayerMaker linear_maker(int index, std::int64_t in, std::int64_t out) {
  return maker<LinearLayer>(fmt::format("classifier.{}", index), index, in, out);
}

constexpr std::array<std::int64_t, 5> kWidths = {64, 128, 256, 512, 512};  // two convolutions each, then pooling

}  // namespace

Architecture make_vgg13(const data::DataSpec& data, const std::string&) {
  require_images("vgg13", data);
  if (std::min(data.shape[1], data.shape[2]) < kSmallest) {
    throw std::invalid_argument(fmt::format("vgg13 halves its maps five times: expected images of at least {0} x {0}, got {1} x {2}",
                                            kSmallest, data.shape[1], data.shape[2]));
  }
  std::vector<LayerMaker> layers;
  std::int64_t channels = data.shape[0];
  int index = 0;  // in torchvision's list, which counts ReLU and pooling
  for (const std::int64_t width : kWidths) {
    layers.push_back(conv_maker(index, channels, width, false));
    layers.push_back(conv_maker(index + 2, width, width, true));
    channels = width;
    index += 5;
  }
  layers.push_back(linear_maker(0, channels * kPooled * kPooled, kVggHidden));
  layers.push_back(linear_maker(3, kVggHidden, kVggHidden));
  layers.push_back(linear_maker(LinearLayer::kLast, kVggHidden, data.classes));
  return {.layers = std::move(layers)};
}

}  // namespace epipe::model
