#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epipe::data {

// General categories L* and N*.
bool is_letter(char32_t point);
bool is_number(char32_t point);
// The property White_Space.
bool is_space(char32_t point);

struct CodePoint {
  char32_t value;
  std::size_t bytes;  // at least 1
};

// Stands for a byte that is not part of a well-formed sequence: neither letter, number nor space.
inline constexpr char32_t kInvalid = 0xffffffff;

// The first code point of UTF-8 text, which must not be empty. Overlong forms, surrogates and values above 0x10ffff are not well-formed;
// each such byte gives one code point kInvalid.
CodePoint first_code_point(std::string_view text);

void append_utf8(char32_t point, std::string& out);

// The position of the first byte that is not part of a well-formed sequence; the text's size if there is none.
std::size_t valid_utf8_bytes(std::string_view text);

// The text with U+FFFD for each ill-formed sequence, as Unicode recommends: one per maximal prefix of a well-formed sequence.
std::string repaired_utf8(std::string_view text);

}  // namespace epipe::data
