#pragma once

#include <string>
#include <string_view>

namespace epipe::report {

// Escapes text as content or attribute value of HTML and XML. Bytes not allowed there (control characters, broken UTF-8) become U+FFFD.
std::string escape(std::string_view text);

// At most `length` characters; a longer text ends in an ellipsis.
std::string shorten(const std::string& text, std::size_t length);

// The number of characters in the UTF-8 text.
std::size_t characters(std::string_view text);

// Numbers for humans; "-" if not finite.
std::string number_text(double value);     // "0.0312", "533", "4.5e-05"
std::string percent_text(double share);    // "94.7 %" of 0.947
std::string bytes_text(double bytes);      // "1.23 MB"
std::string seconds_text(double seconds);  // "12.3 ms", "1 h 02 min"

// The largest unit in which `most` is at least 1: divide by `size` and append `name`.
struct Unit {
  double size;
  std::string_view name;
};
Unit bytes_unit(double most);
Unit seconds_unit(double most);

}  // namespace epipe::report
