#include "epipe/data/text/tokenizer/byte_names.h"

#include <cstdint>

#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::size_t kNames = 512;  // every name is below this code point

bool has_picture(unsigned byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae; }

std::array<std::int16_t, kNames> make_bytes() {
  std::array<std::int16_t, kNames> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[first_code_point(byte_names()[byte]).value] = static_cast<std::int16_t>(byte);
  return bytes;
}

}  // namespace

const std::array<std::string, 256>& byte_names() {
  static const std::array<std::string, 256> names = [] {
    std::array<std::string, 256> made;
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) append_utf8(has_picture(byte) ? byte : next++, made[byte]);
    return made;
  }();
  return names;
}

bool bytes_of_names(std::string_view token, std::string& bytes) {
  static const std::array<std::int16_t, kNames> byte_of = make_bytes();
  bytes.clear();
  while (!token.empty()) {
    const CodePoint point = first_code_point(token);
    if (point.value >= kNames || byte_of[point.value] < 0) return false;
    bytes += static_cast<char>(byte_of[point.value]);
    token.remove_prefix(point.bytes);
  }
  return true;
}

}  // namespace epipe::data
