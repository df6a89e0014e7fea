#pragma once

#include <functional>
#include <string>
#include <vector>

#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

// Transforms the texts of tokens step by step until they only need to be concatenated: ByteLevel, WordPiece, Fuse, or several in Sequence.
using TokenDecoder = std::function<void(std::vector<std::string>& tokens)>;

// Without a decoder the tokens are joined by blanks. Throws BadTokenizer.
TokenDecoder make_decoder(const Component& decoder);

}  // namespace epipe::data
