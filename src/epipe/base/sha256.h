#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "epipe/base/bytes.h"

namespace epipe {

// SHA-256 (FIPS 180-4). Its time depends on the length of the input and on nothing else about it.
std::array<std::byte, 32> sha256(ByteView bytes);
// As 64 hex digits, like sha256sum.
std::string sha256_hex(std::string_view text);

}  // namespace epipe
