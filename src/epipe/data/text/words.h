#pragma once

#include <string_view>

namespace epipe::data {

// Removes the first word from `text`, which must not be empty, as GPT-2 and RoBERTa split text before merging byte pairs:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// The concatenated words equal the text, byte for byte, for any bytes.
std::string_view take_word(std::string_view& text);

}  // namespace epipe::data
