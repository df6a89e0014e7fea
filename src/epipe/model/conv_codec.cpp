// The halves of conv:20x3 and conv:32x4,16.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "epipe/layer/initialization.h"
#include "epipe/layer/modules.h"
#include "epipe/model/learned_layers.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

// One set: [B, in, H, W] <-> [B, channels, H / kernel, W / kernel]
struct SetShape {
  std::int64_t in = 1;
  std::int64_t channels = 1;
  std::int64_t kernel = 1;
  std::int64_t height = 1;  // of the larger side
  std::int64_t width = 1;
};

class ConvEncode final : public layer::Layer {
 public:
  ConvEncode(const std::string& name, const std::vector<SetShape>& sets) : Layer(name) {
    for (const SetShape& s : sets) {
      const layer::ConvShape shape{.in = s.in, .out = s.channels, .kernel = s.kernel, .stride = s.kernel, .bias = true};
      convs_.push_back(register_module(std::to_string(convs_.size()), std::make_shared<layer::Conv2d>(shape)));
    }
  }

  Tensors forward(const Tensors& in, const ForwardContext&) override {
    torch::Tensor x = in[0];
    for (const auto& conv : convs_) x = conv->forward(x);
    return {x};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    double total = 0;
    double positions = static_cast<double>(in[0].numel() / in[0].size(1));
    for (const auto& conv : convs_) {
      positions /= static_cast<double>(conv->weight.size(2) * conv->weight.size(3));
      total += 2 * positions * static_cast<double>(conv->weight.numel());
    }
    return total;
  }

 private:
  std::vector<std::shared_ptr<layer::Conv2d>> convs_;  // shared with the module tree, which owns them
};

// weight [channels, in, kernel, kernel], bias [in], as in ConvTranspose2d
class Transposed final : public torch::nn::Module {
 public:
  explicit Transposed(const SetShape& s)
      : shape_(s),
        weight_(register_parameter("weight", layer::new_weight({s.channels, s.in, s.kernel, s.kernel}))),
        bias_(register_parameter("bias", torch::zeros({s.in}))) {}

  // Trailing rows and columns that no window reached come back as the bias alone.
  torch::Tensor forward(const torch::Tensor& x) const {
    const std::int64_t k = shape_.kernel;
    return torch::conv_transpose2d(x, weight_, bias_, k, /*padding=*/0, {shape_.height % k, shape_.width % k});
  }
  const torch::Tensor& weight() const { return weight_; }

 private:
  SetShape shape_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

class ConvDecode final : public layer::Layer {
 public:
  ConvDecode(const std::string& name, const std::vector<SetShape>& sets) : Layer(name) {
    for (auto set = sets.rbegin(); set != sets.rend(); ++set) {
      convs_.push_back(register_module(std::to_string(convs_.size()), std::make_shared<Transposed>(*set)));
    }
  }

  Tensors forward(const Tensors& in, const ForwardContext&) override {
    torch::Tensor x = in[0];
    for (const auto& conv : convs_) x = conv->forward(x);
    return {x};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    double total = 0;
    double positions = static_cast<double>(in[0].numel() / in[0].size(1));
    for (const auto& conv : convs_) {
      total += 2 * positions * static_cast<double>(conv->weight().numel());
      positions *= static_cast<double>(conv->weight().size(2) * conv->weight().size(3));
    }
    return total;
  }

 private:
  std::vector<std::shared_ptr<Transposed>> convs_;  // shared with the module tree, which owns them
};

}  // namespace

CodecHalves make_conv_codec(const std::string& name, const LearnedCodec& codec, const std::vector<std::int64_t>& shape) {
  if (shape.size() != 4) {
    throw std::invalid_argument(fmt::format("conv: compresses maps [B, C, H, W], the cut carries [{}]", fmt::join(shape, ", ")));
  }
  std::vector<SetShape> sets;
  SetShape next{.in = shape[1], .height = shape[2], .width = shape[3]};
  for (const auto& set : codec.sets) {
    next.channels = set.channels;
    next.kernel = set.kernel;
    if (next.height < set.kernel || next.width < set.kernel) {
      throw std::invalid_argument(fmt::format("a kernel of {} does not fit maps of {} x {}", set.kernel, next.height, next.width));
    }
    sets.push_back(next);
    next = {.in = set.channels, .height = next.height / set.kernel, .width = next.width / set.kernel};
  }
  return {std::make_shared<ConvEncode>(name + ".encode", sets), std::make_shared<ConvDecode>(name + ".decode", sets)};
}

}  // namespace epipe::model
