#pragma once

#include <memory>
#include <string>

#include "epipe/layer/initialization.h"
#include "epipe/layer/layer.h"
#include "epipe/layer/modules.h"
#include "epipe/model/decoder_config.h"

// The layers of a decoder: embedding, blocks, norm, head, with Hugging Face's names for their weights.
//
//   [B, T] token ids  embedding  [B, T, F]  block.0 ... block.N  [B, T, F]  norm  [B, T, F]  head  [B, T, V]
namespace epipe::model {

// The base of all layers: the config, and normally distributed initial weights.
class DecoderLayer : public layer::Layer {
 public:
  DecoderLayer(const std::string& name, const std::string& prefix, const DecoderConfig& config) : Layer(name, prefix), config_(config) {}
  void initialize(std::uint64_t seed) override {
    layer::initialize(*this, seed, {.linear = layer::Initialization::Rule::kNormal, .deviation = config_.initializer_range});
  }

 protected:
  const DecoderConfig& config() const { return config_; }
  // The position of the first token of `at`.
  static std::int64_t first_position(const layer::ForwardContext& at);
  // split_heads: [B, T, heads * D] -> [B, heads, T, D]; join_heads is its inverse.
  torch::Tensor split_heads(const torch::Tensor& x) const {
    return x.reshape({x.size(0), x.size(1), -1, config_.head_dim}).transpose(1, 2);
  }
  static torch::Tensor join_heads(const torch::Tensor& x) { return x.transpose(1, 2).reshape({x.size(0), x.size(2), -1}); }
  // [B, heads, T, D], [B, groups, T, D] twice -> [B, heads, T, D]; preceded by the tokens in the cache.
  torch::Tensor attend(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                       const layer::ForwardContext& at) const;
  double attention_flops(const torch::Tensor& x) const;  // of scores and their sums, [B, T, F]

 private:
  DecoderConfig config_;
};

// The matrix of token embeddings, which a tied head shares.
class DecoderEmbedding : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;
  virtual torch::Tensor matrix() const = 0;  // [V, F], the parameter itself
};

std::shared_ptr<DecoderEmbedding> make_llama_embedding(const DecoderConfig& config);
std::shared_ptr<DecoderEmbedding> make_gpt2_embedding(const DecoderConfig& config);
std::shared_ptr<layer::Layer> make_llama_block(const DecoderConfig& config, std::int64_t index);
std::shared_ptr<layer::Layer> make_gpt2_block(const DecoderConfig& config, std::int64_t index);
std::shared_ptr<layer::Layer> make_decoder_norm(const DecoderConfig& config);

// [B, T, F] -> logits [B, T, V]. `for_loss`: -> {[B, T, F] in the type of products, [V, F]} instead, from which the loss computes a few
// logits at a time: all of them would take more memory than the rest of the model.
std::shared_ptr<layer::Layer> make_decoder_head(const DecoderConfig& config, bool for_loss);
// Makes the head use the embedding's matrix, whose gradient is the sum of two parts: each layer sums its micro-batches separately, so that
// the result is the same for every cut.
void tie(layer::Layer& head, std::shared_ptr<DecoderEmbedding> embedding);

}  // namespace epipe::model
