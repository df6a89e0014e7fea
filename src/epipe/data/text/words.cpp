#include "epipe/data/text/words.h"

#include <array>
#include <cstdint>

#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

enum class Class : std::uint8_t { kLetter, kNumber, kSpace, kOther };

struct Symbol {
  Class kind;
  std::size_t bytes;
};

Class class_of(char32_t point) {
  if (point < 0x80) {
    if ((point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z')) return Class::kLetter;
    if (point >= '0' && point <= '9') return Class::kNumber;
  } else {
    if (point == kInvalid) return Class::kOther;
    if (is_letter(point)) return Class::kLetter;
    if (is_number(point)) return Class::kNumber;
  }
  return is_space(point) ? Class::kSpace : Class::kOther;
}

Symbol first_symbol(std::string_view text) {
  const CodePoint point = first_code_point(text);
  return {class_of(point.value), point.bytes};
}

// Bytes of the contraction at the front; 0 if there is none.
std::size_t contraction(std::string_view text) {
  constexpr std::array<std::string_view, 7> kEndings = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view ending : kEndings) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

// The bytes of the run of one class that begins at `at`.
std::size_t run_end(std::string_view text, std::size_t at, Class kind) {
  while (at < text.size()) {
    const Symbol next = first_symbol(text.substr(at));
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

// Ends a run of white space: the last one before a visible symbol belongs to that symbol, unless it is the only one.
std::size_t space_end(std::string_view text) {
  std::size_t last = 0;  // where the last space begins
  std::size_t end = 0;
  while (end < text.size()) {
    const Symbol next = first_symbol(text.substr(end));
    if (next.kind != Class::kSpace) return last > 0 ? last : end;
    last = end;
    end += next.bytes;
  }
  return end;
}

std::size_t word_end(std::string_view text) {
  if (const std::size_t bytes = contraction(text); bytes > 0) return bytes;
  const std::size_t blank = text[0] == ' ' ? 1 : 0;
  if (blank < text.size()) {
    const Symbol first = first_symbol(text.substr(blank));
    if (first.kind != Class::kSpace) return run_end(text, blank + first.bytes, first.kind);
  }
  return space_end(text);
}

}  // namespace

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, word_end(text));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace epipe::data
