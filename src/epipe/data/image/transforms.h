#pragma once

#include <cstdint>

#include "epipe/data/image/image.h"

// Image transforms that match torchvision.transforms on PIL images, pixel for pixel.
namespace epipe::data {

// Random numbers for one sample: a function of the key and of how many were drawn before.
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

// Bilinear, averaging over the area each output pixel covers (PIL's antialias).
Image resize(const Image& image, std::int64_t width, std::int64_t height);
// Resizes the shorter edge to `size`; the longer one keeps the aspect ratio, rounded down.
Image resize_shorter(const Image& image, std::int64_t size);
// The box must lie inside the image.
Image crop(const Image& image, const Box& box);
// Adds black borders.
Image pad(const Image& image, std::int64_t left, std::int64_t top, std::int64_t right, std::int64_t bottom);
// A square from the middle, after padding with black if the image is smaller.
Image center_crop(const Image& image, std::int64_t size);
Image flip(const Image& image);  // horizontally

// RandomCrop: every square of this size is equally likely. The image must be at least as large.
Box random_crop(const Image& image, std::int64_t size, Draws& draws);
// RandomResizedCrop: 8 % to 100 % of the area, aspect ratio 3:4 to 4:3; ten attempts, then the middle.
Box random_resized_crop(std::int64_t width, std::int64_t height, Draws& draws);

// ToTensor and Normalize with ImageNet's mean and deviation: [3, H, W] float32 from `out` on.
void normalize_into(const Image& image, float* out);

}  // namespace epipe::data
