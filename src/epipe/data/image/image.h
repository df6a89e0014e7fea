#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/base/build_part.h"
#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe::data {

// 8-bit RGB, row by row, pixel by pixel: [H, W, 3].
struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels;

  static constexpr std::int64_t kChannels = 3;
  Image() = default;
  Image(std::int64_t w, std::int64_t h) : width(w), height(h), pixels(static_cast<std::size_t>(w * h * kChannels)) {}

  const std::uint8_t* row(std::int64_t y) const { return pixels.data() + y * width * kChannels; }
  std::uint8_t* row(std::int64_t y) { return pixels.data() + y * width * kChannels; }
};

// More pixels than this are refused before anything is allocated.
inline constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 26;

// Converts grey and CMYK to RGB like PIL's convert("RGB"); drops an alpha channel.
Result<Image> decode_jpeg(ByteView bytes);
Result<Image> decode_png(ByteView bytes);
// Detects the format by the first bytes, whatever the file name.
Result<Image> decode_image(ByteView bytes);
Result<Image> read_image(const std::string& path);

// Whether this build has them.
Part jpeg_part();
Part png_part();

}  // namespace epipe::data
