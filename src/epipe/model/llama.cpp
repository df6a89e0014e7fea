// Blocks of Llama, Qwen2 and Qwen3: RMSNorm, attention with rotary positions and shared keys, SwiGLU.
#include <fmt/format.h>

#include "epipe/layer/rope.h"
#include "epipe/model/decoder_layers.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Linear;
using layer::RmsNorm;
using layer::Tensors;
using Family = DecoderConfig::Family;

class LlamaEmbedding final : public DecoderEmbedding {
 public:
  explicit LlamaEmbedding(const DecoderConfig& c)
      : DecoderEmbedding("embedding", "model.", c),
        tokens_(register_module("embed_tokens", std::make_shared<layer::Embedding>(c.vocab_size, c.hidden_size))) {}
  Tensors forward(const Tensors& in, const ForwardContext&) override { return {tokens_->forward(in[0]).to(torch::kFloat32)}; }
  double flops(const Tensors&, const Tensors& out) const override { return static_cast<double>(out[0].numel()); }
  torch::Tensor matrix() const override { return tokens_->weight; }

 private:
  std::shared_ptr<layer::Embedding> tokens_;  // shared with the module tree, which owns it
};

// "self_attn": [B, T, F] -> [B, T, F]
class SelfAttention final : public torch::nn::Module {
 public:
  explicit SelfAttention(const DecoderConfig& c) {
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, bool bias) {
      return register_module(name, std::make_shared<Linear>(in, out, Linear::Options{.bias = bias}));
    };
    query_ = linear("q_proj", c.hidden_size, c.heads * c.head_dim, c.attention_bias);
    key_ = linear("k_proj", c.hidden_size, c.key_value_heads * c.head_dim, c.attention_bias);
    value_ = linear("v_proj", c.hidden_size, c.key_value_heads * c.head_dim, c.attention_bias);
    output_ = linear("o_proj", c.heads * c.head_dim, c.hidden_size, c.attention_bias && c.family != Family::kQwen2);
    if (c.family != Family::kQwen3) return;
    query_norm_ = register_module("q_norm", std::make_shared<RmsNorm>(c.head_dim, c.norm_eps));
    key_norm_ = register_module("k_norm", std::make_shared<RmsNorm>(c.head_dim, c.norm_eps));
  }

  const Linear& query() const { return *query_; }
  const Linear& key() const { return *key_; }
  const Linear& value() const { return *value_; }
  const Linear& output() const { return *output_; }
  torch::Tensor normed_query(const torch::Tensor& x) const { return query_norm_ ? query_norm_->forward(x) : x; }
  torch::Tensor normed_key(const torch::Tensor& x) const { return key_norm_ ? key_norm_->forward(x) : x; }

 private:
  std::shared_ptr<Linear> query_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> key_;
  std::shared_ptr<Linear> value_;
  std::shared_ptr<Linear> output_;
  std::shared_ptr<RmsNorm> query_norm_;  // null except for Qwen3
  std::shared_ptr<RmsNorm> key_norm_;
};

// "mlp": down(silu(gate(x)) * up(x))
class SwiGlu final : public torch::nn::Module {
 public:
  explicit SwiGlu(const DecoderConfig& c) {
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      return register_module(name, std::make_shared<Linear>(in, out, Linear::Options{.bias = c.mlp_bias}));
    };
    gate_ = linear("gate_proj", c.hidden_size, c.intermediate_size);
    up_ = linear("up_proj", c.hidden_size, c.intermediate_size);
    down_ = linear("down_proj", c.intermediate_size, c.hidden_size);
  }
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at) const {
    return down_->forward(torch::silu(gate_->forward(x, at)) * up_->forward(x, at), at);
  }
  double flops(std::int64_t rows) const { return 3 * gate_->flops(rows); }

 private:
  std::shared_ptr<Linear> gate_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> up_;
  std::shared_ptr<Linear> down_;
};

// [B, T, F] -> [B, T, F]: h = x + attention(norm(x)), h + mlp(norm(h))
class LlamaBlock final : public DecoderLayer {
 public:
  LlamaBlock(const DecoderConfig& c, std::int64_t index)
      : DecoderLayer(fmt::format("block.{}", index), fmt::format("model.layers.{}.", index), c),
        before_attention_(register_module("input_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.norm_eps))),
        attention_(register_module("self_attn", std::make_shared<SelfAttention>(c))),
        before_mlp_(register_module("post_attention_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.norm_eps))),
        mlp_(register_module("mlp", std::make_shared<SwiGlu>(c))),
        rope_(c.rope, c.head_dim) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto h = in[0] + attend_to(before_attention_->forward(in[0]), at);
    return {h + mlp_->forward(before_mlp_->forward(h), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    const auto tokens = in[0].size(0) * in[0].size(1);
    return 2 * attention_->query().flops(tokens) + 2 * attention_->key().flops(tokens) + attention_flops(in[0]) + mlp_->flops(tokens);
  }

 private:
  torch::Tensor attend_to(const torch::Tensor& x, const ForwardContext& at) {
    const std::int64_t begin = first_position(at);
    const auto value = split_heads(attention_->value().forward(x, at));
    const auto query = rope_.forward(attention_->normed_query(split_heads(attention_->query().forward(x, at))), begin);
    const auto key = rope_.forward(attention_->normed_key(split_heads(attention_->key().forward(x, at))), begin);
    const auto type = value.scalar_type();
    return attention_->output().forward(join_heads(attend(query.to(type), key.to(type), value, at)), at);
  }

  std::shared_ptr<RmsNorm> before_attention_;  // all shared with the module tree, which owns them
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<RmsNorm> before_mlp_;
  std::shared_ptr<SwiGlu> mlp_;
  layer::Rope rope_;
};

}  // namespace

std::shared_ptr<DecoderEmbedding> make_llama_embedding(const DecoderConfig& config) { return std::make_shared<LlamaEmbedding>(config); }

std::shared_ptr<layer::Layer> make_llama_block(const DecoderConfig& config, std::int64_t index) {
  return std::make_shared<LlamaBlock>(config, index);
}

}  // namespace epipe::model
