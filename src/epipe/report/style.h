#pragma once

#include <string_view>

// What the page looks like and what it does under the pointer.
namespace epipe::report {

extern const std::string_view kStyle;       // CSS
extern const std::string_view kScript;      // JavaScript; takes names from the page as text only
extern const std::string_view kLiveScript;  // follows the server of a live page; behind kScript

}  // namespace epipe::report
