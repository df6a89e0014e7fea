#pragma once

#include <string_view>

// What the page looks like and what it does under the pointer.
namespace epipe::report {

extern const std::string_view kStyle;   // CSS
extern const std::string_view kScript;  // JavaScript; takes names from the page as text only

}  // namespace epipe::report
