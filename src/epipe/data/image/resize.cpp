// PIL's 8-bit resampling: weights in fixed point, first along rows, then along columns, rounded to 8 bits in between.
#include <algorithm>
#include <cmath>

#include "epipe/data/image/transforms.h"

namespace epipe::data {
namespace {

constexpr int kPrecision = 22;  // bits after the point: 8 bits of a pixel and 2 of headroom are left of 32

// The weights of one output pixel: for `count` source pixels from `first` on.
struct Taps {
  std::int64_t first;
  std::int64_t count;
  const std::int32_t* weights;
};

// The triangle filter along one axis.
class Filter {
 public:
  Filter(std::int64_t from, std::int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double support = std::max(scale, 1.0);
    stride_ = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
    weights_.resize(static_cast<std::size_t>(stride_ * to));
    for (std::int64_t i = 0; i < to; ++i) add(i, (static_cast<double>(i) + 0.5) * scale, support, from);
  }

  Taps operator[](std::int64_t i) const {
    const auto [first, count] = ranges_[static_cast<std::size_t>(i)];
    return {first, count, weights_.data() + i * stride_};
  }

 private:
  void add(std::int64_t i, double center, double support, std::int64_t from) {
    const std::int64_t first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const std::int64_t last = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    std::vector<double> exact;
    double sum = 0;
    for (std::int64_t x = first; x < last; ++x) {
      exact.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(x) - center + 0.5) * (1 / support))));
      sum += exact.back();
    }
    for (std::size_t k = 0; k < exact.size(); ++k) {
      const double share = sum == 0 ? exact[k] : exact[k] / sum;
      weights_[static_cast<std::size_t>(i * stride_) + k] = static_cast<std::int32_t>(0.5 + share * (1 << kPrecision));
    }
    ranges_.emplace_back(first, last - first);
  }

  std::int64_t stride_ = 0;
  std::vector<std::int32_t> weights_;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;
};

std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kPrecision, 0, 255)); }

constexpr std::int32_t kHalf = 1 << (kPrecision - 1);

Image resize_rows(const Image& in, std::int64_t width) {
  const Filter filter(in.width, width);
  Image out(width, in.height);
  for (std::int64_t y = 0; y < in.height; ++y) {
    std::uint8_t* to = out.row(y);
    for (std::int64_t x = 0; x < width; ++x, to += 3) {
      const Taps taps = filter[x];
      const std::uint8_t* from = in.row(y) + taps.first * 3;
      std::int32_t r = kHalf;
      std::int32_t g = kHalf;
      std::int32_t b = kHalf;
      for (std::int64_t k = 0; k < taps.count; ++k, from += 3) {
        r += from[0] * taps.weights[k];
        g += from[1] * taps.weights[k];
        b += from[2] * taps.weights[k];
      }
      to[0] = rounded(r);
      to[1] = rounded(g);
      to[2] = rounded(b);
    }
  }
  return out;
}

Image resize_columns(const Image& in, std::int64_t height) {
  const Filter filter(in.height, height);
  Image out(in.width, height);
  const auto length = static_cast<std::size_t>(in.width * Image::kChannels);
  std::vector<std::int32_t> sums(length);
  for (std::int64_t y = 0; y < height; ++y) {
    const Taps taps = filter[y];
    std::fill(sums.begin(), sums.end(), kHalf);
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const std::uint8_t* const from = in.row(taps.first + k);
      const std::int32_t weight = taps.weights[k];
      for (std::size_t x = 0; x < length; ++x) sums[x] += from[x] * weight;
    }
    std::uint8_t* const to = out.row(y);
    for (std::size_t x = 0; x < length; ++x) to[x] = rounded(sums[x]);
  }
  return out;
}

}  // namespace

Image resize(const Image& image, std::int64_t width, std::int64_t height) {
  if (image.width == width) return image.height == height ? image : resize_columns(image, height);
  Image rows = resize_rows(image, width);
  return image.height == height ? rows : resize_columns(rows, height);
}

Image resize_shorter(const Image& image, std::int64_t size) {
  const std::int64_t shorter = std::min(image.width, image.height);
  const std::int64_t longer = std::max(image.width, image.height);
  const auto stretched = static_cast<std::int64_t>(static_cast<double>(size * longer) / static_cast<double>(shorter));
  return image.width <= image.height ? resize(image, size, stretched) : resize(image, stretched, size);
}

}  // namespace epipe::data
