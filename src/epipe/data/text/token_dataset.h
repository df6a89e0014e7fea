#pragma once

#include <memory>

#include "epipe/data/dataset.h"
#include "epipe/data/text/token_store.h"

namespace epipe::data {

// The samples first ... last - 1 of the store: inputs are ids [B, T] padded with `pad`, targets the same ids, layer::kNoTarget at prompts
// and padding.
std::unique_ptr<Dataset> make_token_dataset(TokenStore store, std::size_t first, std::size_t last, DataSpec spec, std::int32_t pad);

}  // namespace epipe::data
