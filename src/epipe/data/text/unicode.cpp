#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

// The length of a sequence by its first byte, and the smallest value that needs this length.
struct Lead {
  std::size_t bytes;
  char32_t bits;
  char32_t smallest;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if (byte >= 0xc0 && byte < 0xe0) return {2, byte & 0x1fU, 0x80};
  if (byte >= 0xe0 && byte < 0xf0) return {3, byte & 0x0fU, 0x800};
  if (byte >= 0xf0 && byte < 0xf8) return {4, byte & 0x07U, 0x10000};
  return {0, 0, 0};
}

// The length of the longest prefix of a well-formed sequence, at least one byte.
std::size_t begun_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes < 3 || byte(0) > 0xf4 || text.size() < 2) return 1;
  const unsigned first = lead.bytes == 3 ? (byte(0) == 0xe0 ? 0xa0U : 0x80U) : (byte(0) == 0xf0 ? 0x90U : 0x80U);
  const unsigned last = byte(0) == 0xed ? 0x9fU : byte(0) == 0xf4 ? 0x8fU : 0xbfU;
  if (byte(1) < first || byte(1) > last) return 1;
  return lead.bytes == 4 && text.size() > 2 && (byte(2) & 0xc0U) == 0x80U ? 3 : 2;
}

}  // namespace

bool is_space(char32_t p) {
  if (p < 0x80) return p == ' ' || (p >= 0x09 && p <= 0x0d);
  return p == 0x85 || p == 0xa0 || p == 0x1680 || (p >= 0x2000 && p <= 0x200a) || p == 0x2028 || p == 0x2029 || p == 0x202f ||
         p == 0x205f || p == 0x3000;
}

CodePoint first_code_point(std::string_view text) {
  constexpr CodePoint kBad = {kInvalid, 1};
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0 || lead.bytes > text.size()) return kBad;
  char32_t value = lead.bits;
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0U) != 0x80) return kBad;
    value = (value << 6) | (byte & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < lead.smallest || value > 0x10ffff || surrogate) return kBad;
  return {value, lead.bytes};
}

void append_utf8(char32_t point, std::string& out) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80U | ((point >> shift) & 0x3fU)); };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0U | point >> 6);
    tail(0);
  } else if (point < 0x10000) {
    out += static_cast<char>(0xe0U | point >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0U | point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t valid_utf8_bytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const CodePoint point = first_code_point(text.substr(at));
    if (point.value == kInvalid) return at;
    at += point.bytes;
  }
  return at;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t good = valid_utf8_bytes(text);
    out.append(text, 0, good);
    text.remove_prefix(good);
    if (text.empty()) return out;
    append_utf8(0xfffd, out);
    text.remove_prefix(begun_bytes(text));
  }
}

}  // namespace epipe::data
