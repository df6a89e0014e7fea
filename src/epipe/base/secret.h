#pragma once

#include <cstddef>
#include <string_view>

namespace epipe {

// Whether two secrets are equal, in a time that depends on their lengths only.
inline bool equal_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different = different | static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace epipe
