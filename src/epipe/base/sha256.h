#pragma once

#include <array>
#include <cstddef>

#include "epipe/base/bytes.h"

namespace epipe {

// SHA-256 (FIPS 180-4). Not in constant time where the length is the secret; nothing else of the input shows.
std::array<std::byte, 32> sha256(ByteView bytes);

}  // namespace epipe
