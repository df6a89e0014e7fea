#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epipe {

inline constexpr std::size_t kMaxShownBytes = 2000;

// Text of somebody else as terminals and logs may show it: printable ASCII on one line, not long. Whatever could move a cursor, begin a
// line or look like another letter becomes a question mark.
std::string printable(std::string_view text, std::size_t most = kMaxShownBytes);

}  // namespace epipe
