#pragma once

#include <cstddef>
#include <string_view>

namespace epipe {

// Whether `shown` is the secret, in a time that depends only on the length of `shown`.
inline bool equal_secret(std::string_view secret, std::string_view shown) {
  volatile std::size_t different = secret.size() ^ shown.size();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    different = different | static_cast<unsigned char>(expected ^ shown[i]);
  }
  return different == 0;
}

}  // namespace epipe
