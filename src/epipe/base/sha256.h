#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "epipe/base/bytes.h"

namespace epipe {

// SHA-256 (FIPS 180-4). Not in constant time where the length is the secret; nothing else of the input shows.
std::array<std::byte, 32> sha256(ByteView bytes);
// In 64 hex digits, as sha256sum prints it.
std::string sha256_hex(std::string_view text);

}  // namespace epipe
