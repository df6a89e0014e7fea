#include "epipe/model/amoebanet_operations.h"

#include "epipe/layer/batch_norm.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace epipe::model {
namespace {

using layer::DeferredBatchNorm;
using layer::ForwardContext;
using Pair = std::array<std::int64_t, 2>;  // height, width

constexpr std::int64_t kNarrow = 4;  // convolutions work on a quarter of the channels

// ReLU, convolution, BatchNorm
class Step final : public torch::nn::Module {
 public:
  Step(std::int64_t in, std::int64_t out, Pair kernel, Pair stride)
      : weight_(register_parameter("weight", torch::zeros({out, in, kernel[0], kernel[1]}))),
        norm_(register_module("bn", std::make_shared<DeferredBatchNorm>(out))),
        stride_(stride) {}

  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) {
    return norm_->forward(torch::conv2d(torch::relu(x), weight_, {}, stride_, {weight_.size(2) / 2, weight_.size(3) / 2}), at);
  }
  double flops(std::int64_t positions) const { return 2.0 * static_cast<double>(positions * (weight_.numel() + 2 * weight_.size(0))); }

 private:
  torch::Tensor weight_;
  std::shared_ptr<DeferredBatchNorm> norm_;  // shared with the module tree, which owns it
  Pair stride_;
};

class Convolutions final : public Operation {
 public:
  void add(std::int64_t in, std::int64_t out, Pair kernel = {1, 1}, Pair stride = {1, 1}) {
    steps_.push_back(register_module(std::to_string(steps_.size()), std::make_shared<Step>(in, out, kernel, stride)));
  }
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) override {
    torch::Tensor y = x;
    for (const auto& step : steps_) y = step->forward(y, at);
    return y;
  }
  double flops(std::int64_t before, std::int64_t after) const override {
    double total = 0;
    for (const auto& step : steps_) total += step->flops(step == steps_.front() && steps_.size() > 1 ? before : after);
    return total;
  }

 private:
  std::vector<std::shared_ptr<Step>> steps_;  // shared with the module tree, which owns them
};

class FactorizedReduce final : public Operation {
 public:
  FactorizedReduce(std::int64_t in, std::int64_t out)
      : even_(register_parameter("even", torch::zeros({out / 2, in, 1, 1}))),
        odd_(register_parameter("odd", torch::zeros({out - out / 2, in, 1, 1}))),
        norm_(register_module("bn", std::make_shared<DeferredBatchNorm>(out))) {}

  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) override {
    const auto positive = torch::relu(x);
    const auto shifted = torch::constant_pad_nd(positive, {0, 1, 0, 1}).slice(2, 1).slice(3, 1);
    return norm_->forward(torch::cat({torch::conv2d(positive, even_, {}, 2), torch::conv2d(shifted, odd_, {}, 2)}, 1), at);
  }
  double flops(std::int64_t, std::int64_t after) const override {
    return 2.0 * static_cast<double>(after * (even_.numel() + odd_.numel()));
  }

 private:
  torch::Tensor even_;
  torch::Tensor odd_;
  std::shared_ptr<DeferredBatchNorm> norm_;  // shared with the module tree, which owns it
};

class Pool final : public Operation {
 public:
  Pool(bool average, std::int64_t kernel, std::int64_t stride) : average_(average), kernel_(kernel), stride_(stride) {}

  torch::Tensor forward(const torch::Tensor& x, const ForwardContext&) override {
    const std::int64_t padding = kernel_ == 3 ? 1 : 0;
    if (average_) return torch::avg_pool2d(x, kernel_, stride_, padding, /*ceil_mode=*/false, /*count_include_pad=*/false);
    return torch::max_pool2d(x, kernel_, stride_, padding, /*dilation=*/1, /*ceil_mode=*/kernel_ == 2);
  }
  double flops(std::int64_t, std::int64_t) const override { return 0; }

 private:
  bool average_;
  std::int64_t kernel_;
  std::int64_t stride_;
};

class Identity final : public Operation {
 public:
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext&) override { return x; }
  double flops(std::int64_t, std::int64_t) const override { return 0; }
};

std::shared_ptr<Convolutions> narrow_convolutions(std::int64_t channels, const std::vector<std::pair<Pair, Pair>>& kernels) {
  auto steps = std::make_shared<Convolutions>();
  const std::int64_t narrow = channels / kNarrow;
  steps->add(channels, narrow);
  for (const auto& [kernel, stride] : kernels) steps->add(narrow, narrow, kernel, stride);
  steps->add(narrow, channels);
  return steps;
}

}  // namespace

std::shared_ptr<Operation> make_operation(AmoebaOperation kind, std::int64_t channels, std::int64_t stride) {
  switch (kind) {
    case AmoebaOperation::kNone: return stride == 1 ? std::make_shared<Identity>() : make_factorized_reduce(channels, channels);
    case AmoebaOperation::kAvgPool3x3: return std::make_shared<Pool>(true, 3, stride);
    case AmoebaOperation::kMaxPool2x2: return std::make_shared<Pool>(false, 2, stride);
    case AmoebaOperation::kMaxPool3x3: return std::make_shared<Pool>(false, 3, stride);
    case AmoebaOperation::kConv1x1: {
      auto steps = std::make_shared<Convolutions>();
      steps->add(channels, channels, {1, 1}, {stride, stride});
      return steps;
    }
    case AmoebaOperation::kConv3x3: return narrow_convolutions(channels, {{{3, 3}, {stride, stride}}});
    case AmoebaOperation::kConv1x7And7x1: return narrow_convolutions(channels, {{{1, 7}, {1, stride}}, {{7, 1}, {stride, 1}}});
  }
  throw std::logic_error("unknown operation");
}

std::shared_ptr<Operation> make_projection(std::int64_t in, std::int64_t out) {
  auto steps = std::make_shared<Convolutions>();
  steps->add(in, out);
  return steps;
}

std::shared_ptr<Operation> make_factorized_reduce(std::int64_t in, std::int64_t out) { return std::make_shared<FactorizedReduce>(in, out); }

}  // namespace epipe::model
