// resnet18, resnet50, resnet101: the stem, every block (with its skip connection inside), the pooled classifier, under torchvision's names.
#include <fmt/format.h>

#include <array>

#include "epipe/layer/initialization.h"
#include "epipe/model/conv_norm.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::Conv2d;
using layer::ConvShape;
using layer::DeferredBatchNorm;
using layer::ForwardContext;
using layer::Tensors;

constexpr layer::Initialization kResNetInitialization{.convolution = layer::Initialization::Rule::kFanOut, .random_bias = true};

// [B, in, H, W] -> [B, 64, H / 4, W / 4]
class ResNetStem final : public layer::Layer {
 public:
  explicit ResNetStem(std::int64_t channels)
      : Layer("stem", ""),
        conv_(register_module("conv1",
                              std::make_shared<Conv2d>(ConvShape{.in = channels, .out = 64, .kernel = 7, .stride = 2, .padding = 3}))),
        norm_(register_module("bn1", std::make_shared<DeferredBatchNorm>(64))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    return {torch::max_pool2d(layer::relu(norm_->forward(conv_->forward(in[0]), at)), 3, 2, 1)};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return 2.0 * static_cast<double>(positions(in[0]) / 4 * (conv_->weight.numel() + 3 * 64));
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kResNetInitialization); }

 private:
  std::shared_ptr<Conv2d> conv_;  // shared with the module tree, which owns them
  std::shared_ptr<DeferredBatchNorm> norm_;
};

struct ResNetBlockShape {
  std::int64_t in = 64;
  std::int64_t width = 64;
  std::int64_t stride = 1;
  bool bottleneck = false;

  std::int64_t out() const { return bottleneck ? 4 * width : width; }
};

// Two 3x3 convolutions, or a 1x1, 3x3, 1x1 bottleneck; then the input is added, directly or through a 1x1 convolution.
class ResNetBlock final : public layer::Layer {
 public:
  ResNetBlock(const std::string& name, const ResNetBlockShape& s) : Layer(name) {
    if (s.bottleneck) {
      add({.in = s.in, .out = s.width, .kernel = 1});
      add({.in = s.width, .out = s.width, .stride = s.stride, .padding = 1});
      add({.in = s.width, .out = s.out(), .kernel = 1});
    } else {
      add({.in = s.in, .out = s.width, .stride = s.stride, .padding = 1});
      add({.in = s.width, .out = s.width, .padding = 1});
    }
    if (s.stride == 1 && s.in == s.out()) return;
    downsample_ =
        register_module("downsample", std::make_shared<ConvNorm>(ConvShape{.in = s.in, .out = s.out(), .kernel = 1, .stride = s.stride}));
  }

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    torch::Tensor x = in[0];
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      if (i > 0) x = layer::relu(x);
      x = norms_[i]->forward(convs_[i]->forward(x), at);
    }
    return {layer::relu(x + (downsample_ ? downsample_->forward(in[0], at) : in[0]))};
  }
  double flops(const Tensors& in, const Tensors& out) const override {
    const bool bottleneck = convs_.size() == 3;
    double total = downsample_ ? downsample_->flops(out[0]) : 0;
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      const auto at = bottleneck && i == 0 ? positions(in[0]) : positions(out[0]);
      total += 2.0 * static_cast<double>(at * (convs_[i]->weight.numel() + 2 * convs_[i]->weight.size(0)));
    }
    return total;
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kResNetInitialization); }

 private:
  void add(const ConvShape& shape) {
    const auto number = convs_.size() + 1;
    convs_.push_back(register_module(fmt::format("conv{}", number), std::make_shared<Conv2d>(shape)));
    norms_.push_back(register_module(fmt::format("bn{}", number), std::make_shared<DeferredBatchNorm>(shape.out)));
  }

  std::vector<std::shared_ptr<Conv2d>> convs_;  // all shared with the module tree, which owns them
  std::vector<std::shared_ptr<DeferredBatchNorm>> norms_;
  std::shared_ptr<ConvNorm> downsample_;
};

// [B, C, H, W] -> [B, classes]
class ResNetClassifier final : public layer::Layer {
 public:
  ResNetClassifier(std::int64_t channels, std::int64_t classes)
      : Layer("fc", ""), linear_(register_module("fc", std::make_shared<layer::Linear>(channels, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    return {linear_->forward(torch::adaptive_avg_pool2d(in[0], {1, 1}).flatten(1), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return static_cast<double>(in[0].numel()) + linear_->flops(in[0].size(0));
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kResNetInitialization); }

 private:
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree
};

Architecture make_resnet(std::string_view name, const data::DataSpec& data, bool bottleneck, const std::array<int, 4>& blocks) {
  require_images(name, data);
  std::vector<LayerMaker> layers = {maker<ResNetStem>("stem", data.shape[0])};
  ResNetBlockShape shape{.bottleneck = bottleneck};
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    for (int i = 0; i < blocks[group]; ++i) {
      shape.stride = group > 0 && i == 0 ? 2 : 1;
      shape.width = std::int64_t{64} << group;
      layers.push_back(named_maker<ResNetBlock>(fmt::format("layer{}.{}", group + 1, i), shape));
      shape.in = shape.out();
    }
  }
  layers.push_back(maker<ResNetClassifier>("fc", shape.in, data.classes));
  return {.layers = std::move(layers)};
}

}  // namespace

Architecture make_resnet18(const data::DataSpec& data, const std::string&) { return make_resnet("resnet18", data, false, {2, 2, 2, 2}); }
Architecture make_resnet50(const data::DataSpec& data, const std::string&) { return make_resnet("resnet50", data, true, {3, 4, 6, 3}); }
Architecture make_resnet101(const data::DataSpec& data, const std::string&) { return make_resnet("resnet101", data, true, {3, 4, 23, 3}); }

}  // namespace epipe::model
