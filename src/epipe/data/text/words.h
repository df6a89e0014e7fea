#pragma once

#include <string_view>

namespace epipe::data {

// Takes the first word off `text`, which must not be empty, as GPT-2 and RoBERTa split text before byte pairs are merged:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// The words put together are the text, byte by byte, whatever the bytes.
std::string_view take_word(std::string_view& text);

}  // namespace epipe::data
