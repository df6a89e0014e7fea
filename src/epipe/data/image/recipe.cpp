#include "epipe/data/image/recipe.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace epipe::data {
namespace {

constexpr std::int64_t kPadding = 4;

std::int64_t before_crop(std::int64_t size) { return std::lround(static_cast<double>(size) * 256 / 224); }

Image perhaps_flipped(Image image, Draws& draws) { return draws.unit() < 0.5 ? flip(image) : image; }

Image padded_crop(const Image& image, Draws& draws) {
  const Image padded = pad(image, kPadding, kPadding, kPadding, kPadding);
  const std::int64_t top = draws.below(2 * kPadding + 1);
  return crop(padded, {top, draws.below(2 * kPadding + 1), image.height, image.width});
}

Image random_part(const Image& image, std::int64_t size, Draws& draws) {
  const Image resized = resize_shorter(image, before_crop(size));
  return crop(resized, random_crop(resized, size, draws));
}

}  // namespace

Image apply(const Recipe& recipe, const Image& image, Draws& draws) {
  const std::int64_t size = recipe.size;
  switch (recipe.kind) {
    case Recipe::Kind::kWhole: return resize(image, size, size);
    case Recipe::Kind::kCenter: return center_crop(resize_shorter(image, before_crop(size)), size);
    case Recipe::Kind::kPaddedCrop: return resize(perhaps_flipped(padded_crop(image, draws), draws), size, size);
    case Recipe::Kind::kRandomCrop: return perhaps_flipped(random_part(image, size, draws), draws);
    case Recipe::Kind::kResizedCrop:
      return perhaps_flipped(resize(crop(image, random_resized_crop(image.width, image.height, draws)), size, size), draws);
  }
  return image;
}

Recipes choose_recipes(const std::string& augment, bool small_squares, std::int64_t size) {
  using Kind = Recipe::Kind;
  const Kind still = small_squares && augment != "resized-crop" ? Kind::kWhole : Kind::kCenter;
  const Kind cropped = small_squares ? Kind::kPaddedCrop : Kind::kRandomCrop;
  if (augment == "none") return {{still, size}, {still, size}};
  if (augment == "crop" || (augment == "auto" && small_squares)) return {{cropped, size}, {still, size}};
  if (augment == "resized-crop" || augment == "auto") return {{Kind::kResizedCrop, size}, {still, size}};
  throw std::invalid_argument(fmt::format("unknown augmentation \"{}\"; known are auto, none, crop and resized-crop", augment));
}

}  // namespace epipe::data
