#pragma once

#include <string>

#include "epipe/base/bytes.h"

namespace epipe::data {

// The MD5 sum (RFC 1321) as 32 hexadecimal digits. Finds files that were damaged or mixed up; it does not withstand an
// attacker.
std::string md5(ByteView bytes);

}  // namespace epipe::data
