#include "epipe/layer/attention.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "epipe/layer/random.h"

namespace epipe::layer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kScoresAtOnce = std::int64_t{1} << 22;  // 16 MB in float32

double scale_of(const torch::Tensor& query) { return 1 / std::sqrt(static_cast<double>(query.size(3))); }

// Queries from `begin` on, with all keys that any of them sees.
struct Block {
  std::int64_t begin;
  std::int64_t size;
  std::int64_t keys;
};

template <typename Work>
void for_blocks(const torch::Tensor& query, const torch::Tensor& key, const Work& work) {
  const std::int64_t length = query.size(2);
  const std::int64_t before = key.size(2) - length;
  const std::int64_t rows = query.size(0) * query.size(1) * key.size(2);  // scores per query
  const std::int64_t step =
      std::clamp<std::int64_t>(kScoresAtOnce / std::max<std::int64_t>(rows, 1), 16, std::max<std::int64_t>(length, 16));
  for (std::int64_t begin = 0; begin < length; begin += step) {
    const std::int64_t size = std::min(step, length - begin);
    work(Block{begin, size, before + begin + size});
  }
}

// [B, heads, size, keys] after softmax, in float32.
torch::Tensor block_weights(const torch::Tensor& query, const torch::Tensor& key, const Block& at) {
  const auto q = query.narrow(2, at.begin, at.size);
  const auto k = key.narrow(2, 0, at.keys);
  auto scores = torch::matmul(q, k.transpose(-1, -2)).to(torch::kFloat32) * scale_of(query);
  const auto future =
      torch::ones({at.size, at.keys}, torch::TensorOptions(torch::kBool).device(query.device())).triu(at.keys - at.size + 1);
  return torch::softmax(scores.masked_fill_(future, -std::numeric_limits<float>::infinity()), -1);
}

// Without dropout p is 0, and there are no keys.
torch::Tensor dropped(const torch::Tensor& weights, const DropoutInParts& dropout, const Block& at) {
  return dropout.p > 0 ? dropout.drop(weights, at.begin) : weights;
}

// The forward saves its inputs only; the backward recomputes the scores of each block, and drops the same ones.
class BlockAttention : public torch::autograd::Function<BlockAttention> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                               const DropoutInParts& dropout) {
    ctx->save_for_backward({query, key, value});
    ctx->saved_data["p"] = dropout.p;
    if (dropout.p > 0) ctx->saved_data["keys"] = dropout.keys;
    auto out = torch::empty_like(query);
    for_blocks(query, key, [&](const Block& at) {
      const auto weights = dropped(block_weights(query, key, at), dropout, at).to(value.scalar_type());
      out.narrow(2, at.begin, at.size).copy_(torch::matmul(weights, value.narrow(2, 0, at.keys)));
    });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor& query = saved[0];
    const torch::Tensor& key = saved[1];
    const torch::Tensor& value = saved[2];
    DropoutInParts dropout{{}, ctx->saved_data.at("p").toDouble(), query.size(2), key.size(2)};
    if (dropout.p > 0) dropout.keys = ctx->saved_data.at("keys").toTensor();
    auto d_query = torch::empty_like(query);
    auto d_key = torch::zeros_like(key);
    auto d_value = torch::zeros_like(value);
    for_blocks(query, key, [&](const Block& at) {
      const auto weights = block_weights(query, key, at);  // [B, heads, size, keys]
      const auto gradient = gradients[0].narrow(2, at.begin, at.size);
      const auto k = key.narrow(2, 0, at.keys);
      d_value.narrow(2, 0, at.keys).add_(torch::matmul(dropped(weights, dropout, at).to(value.scalar_type()).transpose(-1, -2), gradient));
      const auto d_dropped = torch::matmul(gradient, value.narrow(2, 0, at.keys).transpose(-1, -2)).to(torch::kFloat32);
      const auto d_weights = dropped(d_dropped, dropout, at);
      const auto d_scores =
          (weights * (d_weights - (weights * d_weights).sum(-1, /*keepdim=*/true)) * scale_of(query)).to(query.scalar_type());
      d_query.narrow(2, at.begin, at.size).copy_(torch::matmul(d_scores, k));
      d_key.narrow(2, 0, at.keys).add_(torch::matmul(d_scores.transpose(-1, -2), query.narrow(2, at.begin, at.size)));
    });
    return {d_query, d_key, d_value, {}};
  }
};

torch::Tensor by_blocks(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, const DropoutInParts& dropout) {
  const std::int64_t heads = query.size(1);
  return BlockAttention::apply(query.contiguous(), repeat_groups(key, heads).contiguous(), repeat_groups(value, heads).contiguous(),
                               dropout);
}

}  // namespace

torch::Tensor repeat_groups(const torch::Tensor& x, std::int64_t heads) {
  const std::int64_t groups = x.size(1);
  if (groups == heads) return x;
  return x.unsqueeze(2).expand({x.size(0), groups, heads / groups, x.size(2), x.size(3)}).reshape({x.size(0), heads, x.size(2), x.size(3)});
}

torch::Tensor causal_attention_weights(const torch::Tensor& query, const torch::Tensor& key) {
  return block_weights(query, repeat_groups(key, query.size(1)), {0, query.size(2), key.size(2)});
}

torch::Tensor causal_attention_by_blocks(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
  return by_blocks(query, key, value, {});
}

torch::Tensor causal_attention_with_dropout(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, double p,
                                            const ForwardContext& at, std::string_view name) {
  if (!at.training || p == 0) return causal_attention(query, key, value);
  if (at.pipelined) return by_blocks(query, key, value, dropout_in_parts(query.size(2), key.size(2), p, query.device(), at, name));
  const auto weights = dropout(causal_attention_weights(query, key), p, at, name);
  return torch::matmul(weights.to(value.scalar_type()), repeat_groups(value, query.size(1)));
}

torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
#if TORCH_VERSION_MAJOR >= 2
  const bool whole = query.size(2) == key.size(2);  // LibTorch's causal mask counts from the first key
  if (whole || query.size(2) == 1) {
    const std::int64_t heads = query.size(1);
    return at::scaled_dot_product_attention(query, repeat_groups(key, heads), repeat_groups(value, heads), {}, 0.0,
                                            whole && query.size(2) > 1);
  }
#endif
  return causal_attention_by_blocks(query, key, value);
}

KeyValueCache::Entry KeyValueCache::append(const std::string& layer, const torch::Tensor& key, const torch::Tensor& value) {
  Entry& entry = entries_[layer];
  entry.key = entry.key.defined() ? torch::cat({entry.key, key}, 2) : key;
  entry.value = entry.value.defined() ? torch::cat({entry.value, value}, 2) : value;
  return entry;
}

}  // namespace epipe::layer
