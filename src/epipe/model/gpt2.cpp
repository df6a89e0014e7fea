// Embedding and blocks of GPT-2: learned positions, LayerNorm before each part, weights with the input first.
#include <fmt/format.h>

#include <cmath>

#include "epipe/layer/random.h"
#include "epipe/model/decoder_layers.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::LayerNorm;
using layer::Linear;
using layer::Tensors;

class Gpt2Embedding final : public DecoderEmbedding {
 public:
  explicit Gpt2Embedding(const DecoderConfig& c)
      : DecoderEmbedding("embedding", "transformer.", c),
        tokens_(register_module("wte", std::make_shared<layer::Embedding>(c.vocab_size, c.hidden_size))),
        positions_(register_module("wpe", std::make_shared<layer::Embedding>(c.positions, c.hidden_size))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto positions = positions_->weight.narrow(0, first_position(at), in[0].size(1));
    return {layer::dropout((tokens_->forward(in[0]) + positions).to(torch::kFloat32), config().embedding_dropout, at, name() + ".dropout")};
  }
  double flops(const Tensors&, const Tensors& out) const override { return 2.0 * static_cast<double>(out[0].numel()); }
  torch::Tensor matrix() const override { return tokens_->weight; }

 private:
  std::shared_ptr<layer::Embedding> tokens_;  // shared with the module tree, which owns them
  std::shared_ptr<layer::Embedding> positions_;
};

// Two linear layers under their parent's name: "attn.c_attn", "attn.c_proj"; "mlp.c_fc", "mlp.c_proj".
class LinearPair final : public torch::nn::Module {
 public:
  LinearPair(const char* first, std::int64_t in, std::int64_t middle, const char* second, std::int64_t middle_out, std::int64_t out)
      : first_(register_module(first, std::make_shared<Linear>(in, middle, Linear::Options{.input_first = true}))),
        second_(register_module(second, std::make_shared<Linear>(middle_out, out, Linear::Options{.input_first = true}))) {}
  const Linear& first() const { return *first_; }
  const Linear& second() const { return *second_; }

 private:
  std::shared_ptr<Linear> first_;  // shared with the module tree, which owns them
  std::shared_ptr<Linear> second_;
};

// [B, T, F] -> [B, T, F]: h = x + attention(norm(x)), h + mlp(norm(h))
class Gpt2Block final : public DecoderLayer {
 public:
  Gpt2Block(const DecoderConfig& c, std::int64_t index)
      : DecoderLayer(fmt::format("block.{}", index), fmt::format("transformer.h.{}.", index), c),
        before_attention_(register_module("ln_1", std::make_shared<LayerNorm>(c.hidden_size, c.norm_eps))),
        attention_(register_module(
            "attn", std::make_shared<LinearPair>("c_attn", c.hidden_size, 3 * c.hidden_size, "c_proj", c.hidden_size, c.hidden_size))),
        before_mlp_(register_module("ln_2", std::make_shared<LayerNorm>(c.hidden_size, c.norm_eps))),
        mlp_(register_module("mlp", std::make_shared<LinearPair>("c_fc", c.hidden_size, c.intermediate_size, "c_proj", c.intermediate_size,
                                                                 c.hidden_size))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto h = in[0] + drop(attend_to(before_attention_->forward(in[0]), at), at, "attn.dropout");
    const auto wide = torch::gelu(mlp_->first().forward(before_mlp_->forward(h), at), "tanh");
    return {h + drop(mlp_->second().forward(wide, at), at, "mlp.dropout")};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    const auto tokens = in[0].size(0) * in[0].size(1);
    return attention_->first().flops(tokens) + attention_->second().flops(tokens) + attention_flops(in[0]) +
           2 * mlp_->first().flops(tokens);
  }
  // Weights that add to the residual stream start smaller the more blocks there are.
  void initialize(std::uint64_t seed) override {
    DecoderLayer::initialize(seed);
    const torch::NoGradGuard no_grad;
    const double scale = 1 / std::sqrt(2.0 * static_cast<double>(config().layers));
    for (const LinearPair* const part : {attention_.get(), mlp_.get()}) torch::Tensor(part->second().weight).mul_(scale);
  }

 private:
  torch::Tensor drop(const torch::Tensor& x, const ForwardContext& at, std::string_view what) const {
    return layer::dropout(x, config().residual_dropout, at, fmt::format("{}.{}", name(), what));
  }
  torch::Tensor attend_to(const torch::Tensor& x, const ForwardContext& at) const {
    const auto parts = attention_->first().forward(x, at).chunk(3, -1);
    return attention_->second().forward(join_heads(attend(split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]), at)), at);
  }

  std::shared_ptr<LayerNorm> before_attention_;  // all shared with the module tree, which owns them
  std::shared_ptr<LinearPair> attention_;
  std::shared_ptr<LayerNorm> before_mlp_;
  std::shared_ptr<LinearPair> mlp_;
};

}  // namespace

std::shared_ptr<DecoderEmbedding> make_gpt2_embedding(const DecoderConfig& config) { return std::make_shared<Gpt2Embedding>(config); }

std::shared_ptr<layer::Layer> make_gpt2_block(const DecoderConfig& config, std::int64_t index) {
  return std::make_shared<Gpt2Block>(config, index);
}

}  // namespace epipe::model
