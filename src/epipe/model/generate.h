#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "epipe/model/model.h"

namespace epipe::model {

struct GenerateOptions {
  std::int64_t max_new_tokens = 64;
  double temperature = 0;  // 0: the most likely token
  double top_p = 1;        // sample from the most likely tokens whose probabilities add up to this
  std::uint64_t seed = 0;
  std::vector<std::int64_t> end_tokens{};  // stop after any of these
};

// Continues a text with a decoder that outputs logits, one token at a time, caching keys and values. Returns the prompt followed by the
// new tokens. `on_token` sees every new token. `device`: where the model is. The draws depend only on seed and position.
std::vector<std::int64_t> generate(const Model& model, std::vector<std::int64_t> ids, const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token = {}, const torch::Device& device = torch::kCPU);

}  // namespace epipe::model
