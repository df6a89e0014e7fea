#pragma once

#include <string>

#include "epipe/base/bytes.h"

namespace epipe::data {

// The MD5 sum (RFC 1321) as 32 hexadecimal digits. Detects damaged or mixed-up files; it does not protect against attackers.
std::string md5(ByteView bytes);

}  // namespace epipe::data
