#include "epipe/model/generate.h"

#include <algorithm>

#include "epipe/layer/attention.h"
#include "epipe/layer/random.h"
#include "epipe/layer/scramble.h"

namespace epipe::model {
namespace {

// Logits [V], on the CPU, of the token that follows `ids`; tokens in the cache have been processed already.
torch::Tensor next_logits(const Model& model, std::span<const std::int64_t> ids, layer::KeyValueCache& cache, const torch::Device& device) {
  layer::ForwardContext at;
  at.training = false;
  at.samples = {0};
  at.cache = &cache;
  const auto count = static_cast<std::int64_t>(ids.size());
  layer::Tensors x = {torch::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size())).view({1, count}).to(device)};
  for (const auto& layer : model.layers) {
    if (layer == model.layers.back()) x[0] = x[0].narrow(1, x[0].size(1) - 1, 1);  // the head needs only the last token
    x = layer->forward(x, at);
  }
  cache.advance(count);
  return x[0].to(torch::kCPU, torch::kFloat32).view({-1});
}

// Draws from the most likely tokens whose probabilities add up to `top_p`; `uniform` is in [0, 1).
std::int64_t draw(const torch::Tensor& logits, const GenerateOptions& options, float uniform) {
  const auto [p, order] = torch::softmax(logits.to(torch::kFloat64) / options.temperature, 0).sort(0, /*descending=*/true);
  const auto sums = p.cumsum(0);
  const double* const sum = sums.data_ptr<double>();
  const double* const end = sum + sums.numel();
  const double* const last = std::min(std::lower_bound(sum, end, options.top_p), end - 1);
  const double* const drawn = std::min(std::upper_bound(sum, end, static_cast<double>(uniform) * *last), last);
  return order[drawn - sum].item<std::int64_t>();
}

}  // namespace

std::vector<std::int64_t> generate(const Model& model, std::vector<std::int64_t> ids, const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token, const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  const std::uint64_t key = layer::key_of(options.seed, "generate");
  layer::KeyValueCache cache;
  std::span<const std::int64_t> unread = ids;
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto logits = next_logits(model, unread, cache, device);
    const std::int64_t token =
        options.temperature > 0 ? draw(logits, options, layer::unit(key, ids.size())) : logits.argmax().item<std::int64_t>();
    ids.push_back(token);
    unread = std::span(ids).last(1);
    if (on_token) on_token(token);
    if (std::find(options.end_tokens.begin(), options.end_tokens.end(), token) != options.end_tokens.end()) break;
  }
  return ids;
}

}  // namespace epipe::model
