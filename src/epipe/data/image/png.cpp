#include <fmt/format.h>
#include <png.h>

#include "epipe/data/image/image.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kStored = 4;  // libpng gives RGBA; RGB alone would blend the alpha channel into a background

// libpng's simplified API, released on every return.
struct Reader {
  Reader() { image.version = PNG_IMAGE_VERSION; }
  ~Reader() { png_image_free(&image); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  png_image image{};
};

Image without_alpha(const std::vector<std::uint8_t>& rgba, std::int64_t width, std::int64_t height) {
  Image image(width, height);
  for (std::size_t i = 0; i < rgba.size() / kStored; ++i) std::memcpy(&image.pixels[3 * i], &rgba[kStored * i], 3);
  return image;
}

}  // namespace

Result<Image> decode_png(ByteView bytes) {
  Reader reader;
  png_image& image = reader.image;
  const auto failed = [&] { return Error{ErrorCode::kBadFile, fmt::format("broken PNG: {}", image.message)}; };
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) return failed();
  if (std::uint64_t{image.width} * image.height > kMaxPixels)
    return Error{ErrorCode::kTooLarge, fmt::format("a PNG of {} x {} pixels", image.width, image.height)};
  image.format = PNG_FORMAT_RGBA;
  std::vector<std::uint8_t> rgba(std::size_t{image.width} * image.height * kStored);
  if (png_image_finish_read(&image, nullptr, rgba.data(), 0, nullptr) == 0) return failed();
  return without_alpha(rgba, image.width, image.height);
}

Part png_part() { return {"png", true, fmt::format("libpng {}", PNG_LIBPNG_VER_STRING)}; }

}  // namespace epipe::data
