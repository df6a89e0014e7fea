#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// Attention of a decoder: a token sees itself and the tokens before it. query [B, heads, T, D], key and value [B, groups, S, D] with
// S >= T; the queries belong to the last T of S tokens, and heads / groups of them share a key. Returns [B, heads, T, D].
//
// Memory is proportional to T, not T^2: uses LibTorch's scaled_dot_product_attention if it has one, otherwise blocks of queries whose
// scores are recomputed in the backward.
torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value);

// The same, always in blocks.
torch::Tensor causal_attention_by_blocks(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value);

// The same with dropout of the scores after softmax while training, in blocks: each score is dropped as dropout() of all of them, [B,
// heads, T, S], drops it. Where nothing is pipelined memory is proportional to T^2, as PyTorch's own dropout draws for all scores at once.
torch::Tensor causal_attention_with_dropout(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, double p,
                                            const ForwardContext& at, std::string_view name);

// The scores [B, heads, T, S] after softmax. Memory is proportional to T^2.
torch::Tensor causal_attention_weights(const torch::Tensor& query, const torch::Tensor& key);

// Repeats keys or values so that each of `heads` has one.
torch::Tensor repeat_groups(const torch::Tensor& x, std::int64_t heads);

// Keys and values of the tokens a model has read, by layer, so that the next token costs one position instead of all.
class KeyValueCache {
 public:
  struct Entry {
    torch::Tensor key;  // [B, groups, S, D]
    torch::Tensor value;
  };
  // Appends keys and values of new tokens, and returns all of them.
  Entry append(const std::string& layer, const torch::Tensor& key, const torch::Tensor& value);
  std::int64_t length() const { return length_; }           // tokens that are in every layer
  void advance(std::int64_t tokens) { length_ += tokens; }  // after a forward through all layers

 private:
  std::map<std::string, Entry> entries_;
  std::int64_t length_ = 0;
};

}  // namespace epipe::layer
