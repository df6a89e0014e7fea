#pragma once

#include <array>
#include <cstddef>
#include <span>

// Orthonormal cosine transforms of small blocks, 16 blocks side by side: one lane per block, whatever its size. Products of a matrix
// with the channels of places. Reflections of features.
namespace epipe::kernels {

inline constexpr std::size_t kMaxEdge = 16;
inline constexpr std::size_t kBatch = 16;  // blocks per call

// A separable linear map of blocks [height, width]: rows is [height, height], columns [width, width], row-major.
struct BlockTransform {
  std::size_t height;
  std::size_t width;
  const float* rows;
  const float* columns;
};

// Combinations of channels: matrix is [rows, channels], row-major.
struct ChannelMatrix {
  std::size_t rows;
  std::size_t channels;
  const float* matrix;
};

// Householder reflections x - scale (w . x) w. rows is [count, length], row-major; a row of x is as long, and zeros fill both up.
struct ReflectionRows {
  static constexpr std::size_t kSums = 32;  // of a dot product, interleaved; length is a multiple of it

  std::size_t count;
  std::size_t length;
  const float* rows;
  const float* scales;
};

// The matrix of the DCT-II of n = 1 ... kMaxEdge points, and its transpose, the inverse: sqrt(2/n) cos(pi k (2 x + 1) / 2n) at row k,
// column x, with row 0 divided by sqrt(2); the nearest float32 of the true value.
const float* forward_dct(std::size_t n);
const float* inverse_dct(std::size_t n);

}  // namespace epipe::kernels
