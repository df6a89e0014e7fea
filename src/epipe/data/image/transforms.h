#pragma once

#include <cstdint>

#include "epipe/data/image/image.h"

// Images as torchvision.transforms makes them of PIL images, pixel for pixel.
namespace epipe::data {

// Random numbers of one sample: a function of the key and of how many were drawn before.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  double unit();                            // in [0, 1)
  std::int64_t below(std::int64_t end);     // in [0, end)
  double between(double low, double high);  // uniform

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

struct Box {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Bilinear, over as many pixels as one of the result covers (PIL's antialias).
Image resize(const Image& image, std::int64_t width, std::int64_t height);
// The shorter edge becomes `size`; the longer one keeps the ratio, cut down to a whole number.
Image resize_shorter(const Image& image, std::int64_t size);
// The box lies inside the image.
Image crop(const Image& image, const Box& box);
// Black borders.
Image pad(const Image& image, std::int64_t left, std::int64_t top, std::int64_t right, std::int64_t bottom);
// A square from the middle; black borders first where the image is smaller.
Image center_crop(const Image& image, std::int64_t size);
Image flip(const Image& image);  // left and right

// RandomCrop: every square of this size is as likely. The image is at least as large.
Box random_crop(const Image& image, std::int64_t size, Draws& draws);
// RandomResizedCrop: 8 % to 100 % of the area, 3:4 to 4:3; ten attempts, then the middle.
Box random_resized_crop(std::int64_t width, std::int64_t height, Draws& draws);

// ToTensor and Normalize with ImageNet's mean and deviation: [3, H, W] float32 from `out` on.
void normalize_into(const Image& image, float* out);

}  // namespace epipe::data
