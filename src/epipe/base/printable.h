#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epipe {

inline constexpr std::size_t kMaxShownBytes = 2000;

// Makes untrusted text safe for terminals and logs: printable ASCII on one line, cut after `most` bytes. Whatever could move a cursor,
// begin a line or look like another letter becomes a question mark.
std::string printable(std::string_view text, std::size_t most = kMaxShownBytes);

}  // namespace epipe
