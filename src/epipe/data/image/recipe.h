#pragma once

#include <cstdint>
#include <string>

#include "epipe/data/image/image.h"
#include "epipe/data/image/transforms.h"

namespace epipe::data {

// How an image of any size becomes one of size x size.
struct Recipe {
  enum class Kind : std::uint8_t {
    kWhole,        // the whole image, its ratio not kept
    kCenter,       // shorter edge to 8/7 of the size, then the middle (256 and 224)
    kPaddedCrop,   // 4 black pixels around, a random part of the original size, perhaps flipped, then the whole of it
    kRandomCrop,   // shorter edge to 8/7 of the size, then a random part, perhaps flipped
    kResizedCrop,  // a random part of random size and ratio, perhaps flipped
  };
  Kind kind = Kind::kWhole;
  std::int64_t size = 224;
};

Image apply(const Recipe& recipe, const Image& image, Draws& draws);

// The recipes of the two splits, by --augment: auto, none, crop or resized-crop. Small square images (CIFAR) are kept whole where others
// are cut. Throws std::invalid_argument for another name.
struct Recipes {
  Recipe train;
  Recipe validation;
};
Recipes choose_recipes(const std::string& augment, bool small_squares, std::int64_t size);

}  // namespace epipe::data
