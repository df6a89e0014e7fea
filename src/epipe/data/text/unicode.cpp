#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

// The length of a sequence by its first byte, and the smallest value that needs so many bytes.
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

}  // namespace epipe::data
