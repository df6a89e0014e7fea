#pragma once

#include <string>
#include <string_view>

namespace epipe::report {

// The text as HTML and XML content or attribute value. Bytes that neither allows (control characters, broken UTF-8) become U+FFFD.
std::string escape(std::string_view text);

// At most `length` characters; a longer text ends in an ellipsis.
std::string shorten(const std::string& text, std::size_t length);

// How many characters the UTF-8 text shows.
std::size_t characters(std::string_view text);

// Numbers for people, "-" for what is not finite.
std::string number_text(double value);     // "0.0312", "533", "4.5e-05"
std::string percent_text(double share);    // "94.7 %" of 0.947
std::string bytes_text(double bytes);      // "1.23 MB"
std::string seconds_text(double seconds);  // "12.3 ms", "1 h 02 min"

// The largest unit that leaves `most` at 1 or above: divide by `size` and write `name`.
struct Unit {
  double size;
  std::string_view name;
};
Unit bytes_unit(double most);
Unit seconds_unit(double most);

}  // namespace epipe::report
