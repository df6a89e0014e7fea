#pragma once

#include <functional>
#include <string_view>

#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

using WordSink = std::function<void(std::string_view word)>;

// Splits normalized text into words, which it passes on one by one, so that a text of any length needs no list of them: ByteLevel, Split,
// Digits, BertPreTokenizer, or several in Sequence.
struct PreTokenizer {
  std::function<void(std::string_view text, const WordSink& sink)> split;
  bool byte_level = false;  // the vocabulary names the bytes of a word, not its characters
};

// Throws BadTokenizer.
PreTokenizer make_pre_tokenizer(const Component& pre_tokenizer);

}  // namespace epipe::data
