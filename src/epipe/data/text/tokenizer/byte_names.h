#pragma once

#include <array>
#include <string>
#include <string_view>

namespace epipe::data {

// Byte-level vocabularies name a byte by a printable character: itself where it has a picture, the next of 256, 257, ... where it has none.
const std::array<std::string, 256>& byte_names();

// The bytes that a token of such a vocabulary stands for; false, with `bytes` undefined, where a character is no byte's name.
bool bytes_of_names(std::string_view token, std::string& bytes);

}  // namespace epipe::data
