// mobilenet_v2: features 0 ... 18 and the pooled classifier, under torchvision's names.
#include <fmt/format.h>

#include <array>

#include "epipe/layer/initialization.h"
#include "epipe/layer/random.h"
#include "epipe/model/conv_norm.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ConvShape;
using layer::ForwardContext;
using layer::Tensors;

constexpr double kMobileNetDropout = 0.2;
constexpr std::int64_t kLastChannels = 1280;
constexpr layer::Initialization kMobileNetInitialization{
    .convolution = layer::Initialization::Rule::kFanOut, .linear = layer::Initialization::Rule::kNormal, .deviation = 0.01};

// LibTorch 1.13 has no backward for hardtanh in bfloat16 on the CPU.
torch::Tensor clipped(const torch::Tensor& fresh) {
  if (!fresh.is_cpu() || fresh.scalar_type() != torch::kBFloat16) return layer::relu6(fresh);
  return layer::relu6(fresh.to(torch::kFloat32)).to(torch::kBFloat16);
}

// [B, in, H, W] -> [B, out, H / stride, W / stride]
class MobileNetConv final : public layer::Layer {
 public:
  MobileNetConv(const std::string& name, const ConvShape& shape)
      : Layer(name),
        conv_(register_module("0", std::make_shared<layer::Conv2d>(shape))),
        norm_(register_module("1", std::make_shared<layer::DeferredBatchNorm>(shape.out))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override { return {clipped(norm_->forward(conv_->forward(in[0]), at))}; }
  double flops(const Tensors&, const Tensors& out) const override {
    return conv_->flops(out[0]) + 5.0 * static_cast<double>(out[0].numel());
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kMobileNetInitialization); }

 private:
  std::shared_ptr<layer::Conv2d> conv_;  // shared with the module tree, which owns them
  std::shared_ptr<layer::DeferredBatchNorm> norm_;
};

struct InvertedResidualShape {
  std::int64_t in = 1;
  std::int64_t out = 1;
  std::int64_t stride = 1;
  std::int64_t expansion = 1;
};

// A 1x1 convolution that expands (if there is an expansion), a depthwise convolution, a 1x1 convolution that projects.
class InvertedResidual final : public layer::Layer {
 public:
  InvertedResidual(const std::string& name, const InvertedResidualShape& shape)
      : Layer(name),
        skip_(shape.stride == 1 && shape.in == shape.out),
        conv_(register_module("conv", std::make_shared<torch::nn::Module>())) {
    const std::int64_t hidden = shape.in * shape.expansion;
    int index = 0;
    const auto add = [&](const auto& module) { return conv_->register_module(std::to_string(index++), module); };
    if (shape.expansion != 1) expand_ = add(std::make_shared<ConvNorm>(ConvShape{.in = shape.in, .out = hidden, .kernel = 1}));
    filter_ =
        add(std::make_shared<ConvNorm>(ConvShape{.in = hidden, .out = hidden, .stride = shape.stride, .padding = 1, .groups = hidden}));
    project_ = add(std::make_shared<layer::Conv2d>(ConvShape{.in = hidden, .out = shape.out, .kernel = 1}));
    norm_ = add(std::make_shared<layer::DeferredBatchNorm>(shape.out));
  }

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    torch::Tensor x = expand_ ? clipped(expand_->forward(in[0], at)) : in[0];
    x = norm_->forward(project_->forward(clipped(filter_->forward(x, at))), at);
    return {skip_ ? in[0] + x : x};
  }
  double flops(const Tensors& in, const Tensors& out) const override {
    return (expand_ ? expand_->flops(positions(in[0])) : 0) + filter_->flops(positions(out[0])) + project_->flops(out[0]) +
           4.0 * static_cast<double>(out[0].numel());
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kMobileNetInitialization); }

 private:
  bool skip_;
  std::shared_ptr<torch::nn::Module> conv_;  // all shared with the module tree, which owns them
  std::shared_ptr<ConvNorm> expand_;
  std::shared_ptr<ConvNorm> filter_;
  std::shared_ptr<layer::Conv2d> project_;
  std::shared_ptr<layer::DeferredBatchNorm> norm_;
};

// [B, 1280, H, W] -> [B, classes]
class MobileNetClassifier final : public layer::Layer {
 public:
  explicit MobileNetClassifier(std::int64_t classes)
      : Layer("classifier"), linear_(register_module("1", std::make_shared<layer::Linear>(kLastChannels, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto pooled = torch::adaptive_avg_pool2d(in[0], {1, 1}).flatten(1);
    return {linear_->forward(layer::dropout(pooled, kMobileNetDropout, at, "classifier.0"), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return static_cast<double>(in[0].numel()) + linear_->flops(in[0].size(0));
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kMobileNetInitialization); }

 private:
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree
};

struct Group {
  std::int64_t expansion, out, repeats, stride;
};
constexpr std::array kGroups = {Group{1, 16, 1, 1}, Group{6, 24, 2, 2},  Group{6, 32, 3, 2}, Group{6, 64, 4, 2},
                                Group{6, 96, 3, 1}, Group{6, 160, 3, 2}, Group{6, 320, 1, 1}};

}  // namespace

Architecture make_mobilenet_v2(const data::DataSpec& data, const std::string&) {
  require_images("mobilenet_v2", data);
  std::int64_t channels = 32;
  std::vector<LayerMaker> layers = {
      named_maker<MobileNetConv>("features.0", ConvShape{.in = data.shape[0], .out = channels, .stride = 2, .padding = 1})};
  const auto next_name = [&] { return fmt::format("features.{}", layers.size()); };
  for (const Group& group : kGroups) {
    for (std::int64_t i = 0; i < group.repeats; ++i) {
      const InvertedResidualShape shape{channels, group.out, i == 0 ? group.stride : 1, group.expansion};
      layers.push_back(named_maker<InvertedResidual>(next_name(), shape));
      channels = group.out;
    }
  }
  layers.push_back(named_maker<MobileNetConv>(next_name(), ConvShape{.in = channels, .out = kLastChannels, .kernel = 1}));
  layers.push_back(maker<MobileNetClassifier>("classifier", data.classes));
  return {.layers = std::move(layers)};
}

}  // namespace epipe::model
