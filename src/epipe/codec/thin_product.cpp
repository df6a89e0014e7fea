#include "epipe/codec/thin_product.h"

#include <algorithm>
#include <vector>

#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/share.h"

namespace epipe::codec {
namespace {

// Columns at once: their part of the short factor stays in the first-level cache.
constexpr std::size_t kColumns = 256;

// [rows, columns] to [columns, rows].
void transpose(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to, std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// Calls each(matrix of the batch, first column, columns, room for rank x kColumns) for all of them.
template <typename Each>
void for_columns(const ThinShape& shape, ThreadPool* pool, Each&& each) {
  const std::size_t tiles = (shape.columns + kColumns - 1) / kColumns;
  const std::size_t count = shape.batch * tiles;
  share_items(pool, shape.batch * shape.rows * shape.columns, count, [&](std::size_t, const auto& next) {
    std::vector<float> room(shape.rank * kColumns);
    for (std::size_t i = next(); i < count; i = next()) {
      const std::size_t first = i % tiles * kColumns;
      each(i / tiles, first, std::min(kColumns, shape.columns - first), room.data());
    }
  });
}

}  // namespace

void thin_product(const ThinShape& shape, std::span<const float> left, std::span<const float> right, const kernels::Kernels& kernels,
                  ThreadPool* pool, std::span<float> x) {
  for_columns(shape, pool, [&](std::size_t b, std::size_t first, std::size_t columns, float* room) {
    transpose(right.data() + (b * shape.columns + first) * shape.rank, columns, shape.rank, shape.rank, room, kColumns);
    kernels.mix_channels({shape.rows, shape.rank, left.data() + b * shape.rows * shape.rank}, room, kColumns, columns,
                         x.data() + b * shape.rows * shape.columns + first, shape.columns);
  });
}

void thin_factor(const ThinShape& shape, std::span<const float> x, std::span<const float> left, const kernels::Kernels& kernels,
                 ThreadPool* pool, std::span<float> right) {
  std::vector<float> all(left.size());  // [batch, rank, rows]
  const std::size_t size = shape.rows * shape.rank;
  for (std::size_t b = 0; b < shape.batch; ++b) {
    transpose(left.data() + b * size, shape.rows, shape.rank, shape.rank, all.data() + b * size, shape.rows);
  }
  for_columns(shape, pool, [&](std::size_t b, std::size_t first, std::size_t columns, float* room) {
    kernels.mix_channels({shape.rank, shape.rows, all.data() + b * size}, x.data() + b * shape.rows * shape.columns + first, shape.columns,
                         columns, room, kColumns);
    transpose(room, shape.rank, columns, kColumns, right.data() + (b * shape.columns + first) * shape.rank, shape.rank);
  });
}

}  // namespace epipe::codec
