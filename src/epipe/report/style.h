#pragma once

#include <string_view>

// The look of the page and its behaviour under the pointer.
namespace epipe::report {

extern const std::string_view kStyle;   // CSS
extern const std::string_view kScript;  // JavaScript; takes names from the page as text only
extern const std::string_view kLiveScript;

}  // namespace epipe::report
