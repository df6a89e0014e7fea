// transformer: token and position embeddings, pre-norm blocks of attention and feed-forward, a pooled classifier. The side input is
// the attention mask [B, T], 1 where a token is.
#include <fmt/format.h>

#include <cmath>

#include "epipe/layer/modules.h"
#include "epipe/layer/random.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::LayerNorm;
using layer::Linear;
using layer::Tensors;

constexpr std::int64_t kFeatures = 64;
constexpr std::int64_t kHeads = 4;
constexpr int kBlocks = 2;
constexpr double kTransformerDropout = 0.1;

// [B, T] token ids -> [B, T, F]
class TransformerEmbeddings final : public layer::Layer {
 public:
  TransformerEmbeddings(const std::string& name, std::int64_t vocabulary, std::int64_t length)
      : Layer(name),
        token_(register_module("token", std::make_shared<layer::Embedding>(vocabulary, kFeatures))),
        position_(register_module("position", std::make_shared<layer::Embedding>(length, kFeatures))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto x = token_->forward(in[0]) + position_->weight.narrow(0, 0, in[0].size(1));
    return {layer::dropout(x, kTransformerDropout, at, name() + ".dropout")};
  }
  double flops(const Tensors&, const Tensors& out) const override { return static_cast<double>(out[0].numel()); }

 private:
  std::shared_ptr<layer::Embedding> token_;  // shared with the module tree, which owns them
  std::shared_ptr<layer::Embedding> position_;
};

// [B, T, F] -> [B, T, F], x + attention(norm(x))
class TransformerAttention final : public layer::Layer {
 public:
  explicit TransformerAttention(const std::string& name)
      : Layer(name),
        norm_(register_module("norm", std::make_shared<LayerNorm>(kFeatures))),
        qkv_(register_module("qkv", std::make_shared<Linear>(kFeatures, 3 * kFeatures))),
        out_(register_module("out", std::make_shared<Linear>(kFeatures, kFeatures))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto batch = in[0].size(0);
    const auto length = in[0].size(1);
    const auto heads =
        qkv_->forward(norm_->forward(in[0]), at).view({batch, length, 3, kHeads, kFeatures / kHeads}).permute({2, 0, 3, 1, 4});
    // [B, heads, T, T], and softmax, in float32 under mixed precision too
    auto scores =
        torch::matmul(heads[0], heads[1].transpose(-1, -2)).to(torch::kFloat32) / std::sqrt(static_cast<double>(kFeatures / kHeads));
    if (!at.side.empty()) scores = scores.masked_fill(at.side[0].view({batch, 1, 1, length}) == 0, -1e9);
    const auto mixed = torch::matmul(torch::softmax(scores, -1), heads[2]).transpose(1, 2).reshape({batch, length, kFeatures});
    return {in[0] + layer::dropout(out_->forward(mixed, at), kTransformerDropout, at, name() + ".dropout")};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    const auto tokens = in[0].size(0) * in[0].size(1);
    return qkv_->flops(tokens) + out_->flops(tokens) + 4.0 * static_cast<double>(in[0].numel() * in[0].size(1));
  }

 private:
  std::shared_ptr<LayerNorm> norm_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> qkv_;
  std::shared_ptr<Linear> out_;
};

// [B, T, F] -> [B, T, F], x + ffn(norm(x))
class TransformerFeedForward final : public layer::Layer {
 public:
  explicit TransformerFeedForward(const std::string& name)
      : Layer(name),
        norm_(register_module("norm", std::make_shared<LayerNorm>(kFeatures))),
        up_(register_module("up", std::make_shared<Linear>(kFeatures, 4 * kFeatures))),
        down_(register_module("down", std::make_shared<Linear>(4 * kFeatures, kFeatures))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto y = down_->forward(torch::gelu(up_->forward(norm_->forward(in[0]), at)), at);
    return {in[0] + layer::dropout(y, kTransformerDropout, at, name() + ".dropout")};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    const auto tokens = in[0].size(0) * in[0].size(1);
    return up_->flops(tokens) + down_->flops(tokens);
  }

 private:
  std::shared_ptr<LayerNorm> norm_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> up_;
  std::shared_ptr<Linear> down_;
};

// [B, T, F] -> [B, classes], from the mean over the tokens that the mask keeps
class TextClassifier final : public layer::Layer {
 public:
  TextClassifier(const std::string& name, std::int64_t classes)
      : Layer(name),
        norm_(register_module("norm", std::make_shared<LayerNorm>(kFeatures))),
        linear_(register_module("linear", std::make_shared<Linear>(kFeatures, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto x = norm_->forward(in[0]);
    if (at.side.empty()) return {linear_->forward(x.mean(1), at)};
    const auto mask = at.side[0].to(x.scalar_type()).unsqueeze(-1);  // [B, T, 1]
    return {linear_->forward((x * mask).sum(1) / mask.sum(1).clamp_min(1), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return static_cast<double>(in[0].numel()) + linear_->flops(in[0].size(0));
  }

 private:
  std::shared_ptr<LayerNorm> norm_;  // shared with the module tree, which owns them
  std::shared_ptr<Linear> linear_;
};

}  // namespace

Architecture make_transformer(const data::DataSpec& data, const std::string&) {
  require_text("transformer", data);
  std::vector<LayerMaker> layers = {named_maker<TransformerEmbeddings>("embeddings", data.vocabulary, data.shape[0])};
  for (int i = 0; i < kBlocks; ++i) {
    layers.push_back(named_maker<TransformerAttention>(fmt::format("blocks.{}.attention", i)));
    layers.push_back(named_maker<TransformerFeedForward>(fmt::format("blocks.{}.ffn", i)));
  }
  layers.push_back(named_maker<TextClassifier>("classifier", data.classes));
  return {.layers = std::move(layers)};
}

}  // namespace epipe::model
