#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "epipe/data/fetch/archive.h"

namespace epipe::data {
namespace {

constexpr std::size_t kTarBlock = 512;

// A header's field up to its first zero byte.
std::string_view text_field(ByteView header, std::size_t offset, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + offset, size);
  return text.substr(0, text.find('\0'));
}

std::optional<std::uint64_t> octal(std::string_view text) {
  std::uint64_t value = 0;
  bool any = false;
  for (const char c : text) {
    if (c == ' ') continue;
    if (c < '0' || c > '7' || value >> 40 != 0) return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
    any = true;
  }
  return any ? std::optional(value) : std::nullopt;
}

// The sum of the header's bytes, with the checksum field itself counted as blanks.
std::uint64_t checksum(ByteView header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<std::uint64_t>(header[i]);
  return sum;
}

}  // namespace

Result<std::map<std::string, ByteView>> parse_tar(ByteView bytes) {
  std::map<std::string, ByteView> files;
  ByteReader reader(bytes);
  while (const auto header = reader.take_bytes(kTarBlock)) {
    if (std::all_of(header->begin(), header->end(), [](std::byte b) { return b == std::byte{0}; })) return files;
    const auto size = octal(text_field(*header, 124, 12));
    if (!size || octal(text_field(*header, 148, 8)) != checksum(*header))
      return Error{ErrorCode::kBadFile, "not a tar archive, or a damaged one"};
    const std::string_view name = text_field(*header, 0, 100);
    const auto content = reader.take_bytes(*size);
    if (!content) return Error{ErrorCode::kTruncated, fmt::format("the tar archive ends inside {}", name)};
    const char type = static_cast<char>((*header)[156]);
    if (type == '0' || type == '\0') files.emplace(name.substr(name.rfind('/') + 1), *content);
    std::ignore = reader.take_bytes((kTarBlock - *size % kTarBlock) % kTarBlock);
  }
  if (files.empty()) return Error{ErrorCode::kBadFile, "not a tar archive: too short"};
  return files;
}

}  // namespace epipe::data
