#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace epipe::layer {

// Attention of a decoder: a token sees itself and those before it. query [B, heads, T, D], key and value [B, groups, S, D] with S >= T; the
// queries are those of the last T of S tokens, and heads / groups of them share a key. [B, heads, T, D]
//
// Memory is in proportion to T, not T^2: by LibTorch's scaled_dot_product_attention where it has one, otherwise in blocks of queries whose
// scores the backward computes again.
torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value);

// The same by blocks, whatever LibTorch has.
torch::Tensor causal_attention_by_blocks(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value);

// The scores [B, heads, T, S] of the same, after softmax, for who wants to drop some of them. Memory in proportion to T^2.
torch::Tensor causal_attention_weights(const torch::Tensor& query, const torch::Tensor& key);

// A key or value for each of `heads`.
torch::Tensor repeat_groups(const torch::Tensor& x, std::int64_t heads);

// Keys and values of the tokens that a model has read, by layer, so that the next token costs one position and not all.
class KeyValueCache {
 public:
  struct Entry {
    torch::Tensor key;  // [B, groups, S, D]
    torch::Tensor value;
  };
  // Appends those of new tokens, and gives all.
  Entry append(const std::string& layer, const torch::Tensor& key, const torch::Tensor& value);
  std::int64_t length() const { return length_; }           // tokens that are in every layer
  void advance(std::int64_t tokens) { length_ += tokens; }  // after a forward through all layers

 private:
  std::map<std::string, Entry> entries_;
  std::int64_t length_ = 0;
};

}  // namespace epipe::layer
