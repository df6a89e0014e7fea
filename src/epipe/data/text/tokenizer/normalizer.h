#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

// Transforms text before it is split: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, BertNormalizer, or several in Sequence. Empty: leaves
// the text unchanged.
using Normalizer = std::function<std::string(std::string_view text)>;

// Throws BadTokenizer.
Normalizer make_normalizer(const Component& normalizer);

}  // namespace epipe::data
