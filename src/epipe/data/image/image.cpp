#include "epipe/data/image/image.h"

#include <fmt/format.h>

#include <string_view>

#include "epipe/base/file.h"

namespace epipe::data {
namespace {

constexpr std::uint64_t kMaxImageBytes = std::uint64_t{1} << 30;

bool begins_with(ByteView bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

Result<Image> decode_image(ByteView bytes) {
  if (begins_with(bytes, "\xff\xd8")) return decode_jpeg(bytes);
  if (begins_with(bytes, "\x89PNG")) return decode_png(bytes);
  return Error{ErrorCode::kBadFile, "expected a JPEG or PNG file"};
}

Result<Image> read_image(const std::string& path) {
  const auto bytes = read_file(path, kMaxImageBytes);
  if (!bytes) return bytes.error();
  auto image = decode_image(bytes.value());
  if (!image) return Error{image.error().code, fmt::format("{}: {}", path, image.error().message)};
  return image;
}

}  // namespace epipe::data
