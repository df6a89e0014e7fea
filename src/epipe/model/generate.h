#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "epipe/model/model.h"

namespace epipe::model {

struct GenerateOptions {
  std::int64_t max_new_tokens = 64;
  double temperature = 0;  // 0: the most likely token
  double top_p = 1;        // of the most likely tokens, as many as have this probability together
  std::uint64_t seed = 0;
  std::vector<std::int64_t> end_tokens{};  // after one of them nothing follows
};

// Continues a text with a decoder that gives logits, one token at a time; keys and values of the tokens before are kept. Returns the prompt
// and what follows. `on_token` sees every new token. The draws depend on seed and position alone.
std::vector<std::int64_t> generate(const Model& model, std::vector<std::int64_t> ids, const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token = {});

}  // namespace epipe::model
