// The halves of linear:50, linear:64,axis=s and linear:768,decay=0.83/500/2500.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/layer/modules.h"
#include "epipe/model/learned_layers.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

void set_identity(torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  weight.copy_(torch::eye(weight.size(0), weight.size(1)));
}

// [.., size] -> [.., rank]; with axis=s [B, S, F] -> [B, F, rank]. The current rank and the number of batches trained are buffers, so that
// checkpoints and weights files include them; they change only when a batch is committed.
class LinearEncode final : public layer::Layer {
 public:
  LinearEncode(const std::string& name, const LearnedCodec& codec, std::int64_t size)
      : Layer(name),
        codec_(codec),
        weight_(register_parameter("weight", layer::new_weight({codec.rank, size}))),
        bias_(register_parameter("bias", torch::zeros({codec.rank}))),
        rank_(register_buffer("rank", torch::full({}, codec.rank, torch::kInt64))),
        batches_(register_buffer("batches", torch::zeros({}, torch::kInt64))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    layer::refuse_capture(at, name(), "has a rank that falls");
    trained_ = trained_ || at.training;
    const auto rank = std::clamp<std::int64_t>(rank_.item<std::int64_t>(), 1, codec_.rank);
    const auto x = codec_.over_tokens ? in[0].transpose(1, 2) : in[0];
    return {torch::linear(x, weight_.narrow(0, 0, rank), bias_.narrow(0, 0, rank))};
  }
  double flops(const Tensors& in, const Tensors&) const override { return 2.0 * static_cast<double>(in[0].numel() * codec_.rank); }
  void initialize(std::uint64_t) override { set_identity(weight_); }
  void commit_batch() override {
    if (!std::exchange(trained_, false)) return;
    batches_.add_(1);
    const auto batches = batches_.item<std::int64_t>();
    if (codec_.decay_every == 0 || batches % codec_.decay_every != 0 || batches > codec_.decay_until) return;
    const auto rank = static_cast<std::int64_t>(static_cast<double>(rank_.item<std::int64_t>()) * codec_.decay);
    rank_.fill_(std::max<std::int64_t>(1, rank));
  }
  void discard_batch() override { trained_ = false; }
  torch::Tensor batch_totals() const override { return torch::full({1}, trained_ ? 1 : 0, torch::kFloat64); }
  void set_batch_totals(const torch::Tensor& totals) override { trained_ = totals.item<double>() > 0; }

 private:
  LearnedCodec codec_;
  torch::Tensor weight_;
  torch::Tensor bias_;
  torch::Tensor rank_;
  torch::Tensor batches_;
  bool trained_ = false;  // since the last commit
};

// [.., rank] -> [.., size]; takes the rank from its input.
class LinearDecode final : public layer::Layer {
 public:
  LinearDecode(const std::string& name, const LearnedCodec& codec, std::int64_t size)
      : Layer(name),
        over_tokens_(codec.over_tokens),
        weight_(register_parameter("weight", layer::new_weight({size, codec.rank}))),
        bias_(register_parameter("bias", torch::zeros({size}))) {}

  Tensors forward(const Tensors& in, const ForwardContext&) override {
    const auto y = torch::linear(in[0], weight_.narrow(1, 0, in[0].size(-1)), bias_);
    return {over_tokens_ ? y.transpose(1, 2).contiguous() : y};
  }
  double flops(const Tensors& in, const Tensors&) const override { return 2.0 * static_cast<double>(in[0].numel() * weight_.size(0)); }
  void initialize(std::uint64_t) override { set_identity(weight_); }

 private:
  bool over_tokens_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

}  // namespace

CodecHalves make_linear_codec(const std::string& name, const LearnedCodec& codec, const std::vector<std::int64_t>& shape) {
  if (shape.size() < 2 || (codec.over_tokens && shape.size() != 3)) {
    throw std::invalid_argument(
        fmt::format("linear: compresses [.., F], and [B, S, F] with axis=s; the cut carries [{}]", fmt::join(shape, ", ")));
  }
  const std::int64_t size = codec.over_tokens ? shape[1] : shape.back();
  if (codec.rank > size)
    throw std::invalid_argument(fmt::format("expected a rank of at most {}, the size it compresses, got {}", size, codec.rank));
  return {std::make_shared<LinearEncode>(name + ".encode", codec, size), std::make_shared<LinearDecode>(name + ".decode", codec, size)};
}

}  // namespace epipe::model
