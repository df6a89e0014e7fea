#include "epipe/data/image/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "epipe/layer/random.h"

namespace epipe::data {
namespace {

constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};

// Python's round(): halves go to the even neighbour, which is also the processor's default.
std::int64_t round_even(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

using Table = std::array<std::array<float, 256>, 3>;

Table normalized_values() {
  Table table;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t v = 0; v < 256; ++v) table[c][v] = (static_cast<float>(v) / 255.0F - kMean[c]) / kDeviation[c];
  }
  return table;
}

// The middle, cropped to 3:4 or 4:3.
Box middle(std::int64_t width, std::int64_t height, double narrowest, double widest) {
  Box box{0, 0, height, width};
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < narrowest) box.height = round_even(static_cast<double>(width) / narrowest);
  if (ratio > widest) box.width = round_even(static_cast<double>(height) * widest);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

}  // namespace

double Draws::unit() { return static_cast<double>(layer::mix(key_, drawn_++) >> 11U) * 0x1p-53; }
std::int64_t Draws::below(std::int64_t end) { return static_cast<std::int64_t>(unit() * static_cast<double>(end)); }
double Draws::between(double low, double high) { return low + (high - low) * unit(); }

Image crop(const Image& image, const Box& box) {
  Image out(box.width, box.height);
  const auto length = static_cast<std::size_t>(box.width * Image::kChannels);
  for (std::int64_t y = 0; y < box.height; ++y) std::memcpy(out.row(y), image.row(box.top + y) + box.left * Image::kChannels, length);
  return out;
}

Image pad(const Image& image, std::int64_t left, std::int64_t top, std::int64_t right, std::int64_t bottom) {
  Image out(image.width + left + right, image.height + top + bottom);
  const auto length = static_cast<std::size_t>(image.width * Image::kChannels);
  for (std::int64_t y = 0; y < image.height; ++y) std::memcpy(out.row(top + y) + left * Image::kChannels, image.row(y), length);
  return out;
}

Image center_crop(const Image& image, std::int64_t size) {
  const std::int64_t wide = std::max<std::int64_t>(0, size - image.width);
  const std::int64_t high = std::max<std::int64_t>(0, size - image.height);
  if (wide + high > 0) return center_crop(pad(image, wide / 2, high / 2, (wide + 1) / 2, (high + 1) / 2), size);
  return crop(image, {round_even(static_cast<double>(image.height - size) / 2), round_even(static_cast<double>(image.width - size) / 2),
                      size, size});
}

Image flip(const Image& image) {
  Image out(image.width, image.height);
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = out.row(y) + (image.width - 1) * Image::kChannels;
    for (std::int64_t x = 0; x < image.width; ++x, from += Image::kChannels, to -= Image::kChannels) std::memcpy(to, from, 3);
  }
  return out;
}

Box random_crop(const Image& image, std::int64_t size, Draws& draws) {
  const std::int64_t top = draws.below(image.height - size + 1);
  return {top, draws.below(image.width - size + 1), size, size};
}

Box random_resized_crop(std::int64_t width, std::int64_t height, Draws& draws) {
  constexpr double kSmallest = 0.08;
  constexpr double kNarrowest = 3.0 / 4.0;
  constexpr double kWidest = 4.0 / 3.0;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(width * height) * draws.between(kSmallest, 1);
    const double ratio = std::exp(draws.between(std::log(kNarrowest), std::log(kWidest)));
    const std::int64_t w = round_even(std::sqrt(area * ratio));
    const std::int64_t h = round_even(std::sqrt(area / ratio));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const std::int64_t top = draws.below(height - h + 1);
    return {top, draws.below(width - w + 1), h, w};
  }
  return middle(width, height, kNarrowest, kWidest);
}

void normalize_into(const Image& image, float* out) {
  static const Table table = normalized_values();
  const std::int64_t pixels = image.width * image.height;
  for (std::int64_t i = 0; i < pixels; ++i) {
    for (std::int64_t c = 0; c < 3; ++c)
      out[c * pixels + i] = table[static_cast<std::size_t>(c)][image.pixels[static_cast<std::size_t>(3 * i + c)]];
  }
}

}  // namespace epipe::data
