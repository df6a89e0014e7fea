#pragma once

#include <array>
#include <string>
#include <string_view>

namespace epipe::data {

// Byte-level vocabularies name a byte by a printable character: itself if it is printable, otherwise the next of 256, 257, ...
const std::array<std::string, 256>& byte_names();

// The bytes of a token of such a vocabulary; false, with `bytes` undefined, if a character is not the name of a byte.
bool bytes_of_names(std::string_view token, std::string& bytes);

}  // namespace epipe::data
