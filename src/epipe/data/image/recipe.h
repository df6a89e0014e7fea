#pragma once

#include <cstdint>
#include <string>

#include "epipe/data/image/image.h"
#include "epipe/data/image/transforms.h"

namespace epipe::data {

// How an image of any size becomes one of size x size.
struct Recipe {
  enum class Kind : std::uint8_t {
    kWhole,        // the whole image, without keeping its aspect ratio
    kCenter,       // shorter edge to 8/7 of the size, then the middle (256 and 224)
    kPaddedCrop,   // a border of 4 black pixels, a random crop of the original size, perhaps flipped, then resized as a whole
    kRandomCrop,   // shorter edge to 8/7 of the size, then a random crop, perhaps flipped
    kResizedCrop,  // a random crop of random size and aspect ratio, perhaps flipped
  };
  Kind kind = Kind::kWhole;
  std::int64_t size = 224;
};

Image apply(const Recipe& recipe, const Image& image, Draws& draws);

// The recipes of the two splits, by --augment: auto, none, crop or resized-crop. Small square images (CIFAR) are kept whole where others
// are cropped. Throws std::invalid_argument for an unknown name.
struct Recipes {
  Recipe train;
  Recipe validation;
};
Recipes choose_recipes(const std::string& augment, bool small_squares, std::int64_t size);

}  // namespace epipe::data
