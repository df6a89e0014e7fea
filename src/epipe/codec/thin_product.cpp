#include "epipe/codec/thin_product.h"

#include <algorithm>
#include <vector>

#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/parallel.h"

namespace epipe::codec {
namespace {

// Columns at once: their part of the short factor stays in the first-level cache.
constexpr std::size_t kColumns = 256;
// Kernels are fast for whole vectors: the last columns are filled up to as many as any vector has lanes.
constexpr std::size_t kLanes = 16;

// [rows, columns] to [columns, rows].
void transpose(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to, std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

struct Tile {
  std::size_t matrix;   // of the batch
  std::size_t first;    // column
  std::size_t columns;  // at most kColumns
};

// Room of one thread.
struct Room {
  explicit Room(const ThinShape& shape) : factor(shape.rank * kColumns), last(shape.rows * kLanes) {}
  std::vector<float> factor;  // [rank, kColumns]
  std::vector<float> last;    // [rows, kLanes]: columns behind the last whole vector
};

// Calls each(tile, room) for all of them. A thread takes several in a row, so that others write remote.
template <typename Each>
void for_tiles(const ThinShape& shape, ThreadPool* pool, Each&& each) {
  constexpr std::size_t kInARow = 16;
  const std::size_t tiles = (shape.columns + kColumns - 1) / kColumns;
  const std::size_t all = shape.batch * tiles;
  const std::size_t count = (all + kInARow - 1) / kInARow;
  share_items(pool, shape.batch * shape.rows * shape.columns, count, [&](std::size_t, const auto& next) {
    Room room(shape);
    for (std::size_t part = next(); part < count; part = next()) {
      for (std::size_t i = part * kInARow; i < std::min(all, (part + 1) * kInARow); ++i) {
        const std::size_t first = i % tiles * kColumns;
        each(Tile{i / tiles, first, std::min(kColumns, shape.columns - first)}, room);
      }
    }
  });
}

void copy_columns(const float* from, std::size_t from_stride, std::size_t rows, std::size_t columns, float* to, std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, columns, to + r * to_stride);
}

}  // namespace

void thin_product(const ThinShape& shape, std::span<const float> left, std::span<const float> right, const kernels::Kernels& kernels,
                  ThreadPool* pool, std::span<float> x) {
  for_tiles(shape, pool, [&](const Tile& tile, Room& room) {
    const std::size_t whole = tile.columns / kLanes * kLanes;
    const std::size_t rest = tile.columns - whole;
    const kernels::ChannelMatrix product{shape.rows, shape.rank, left.data() + tile.matrix * shape.rows * shape.rank};
    float* const factor = room.factor.data();
    float* const to = x.data() + tile.matrix * shape.rows * shape.columns + tile.first;
    transpose(right.data() + (tile.matrix * shape.columns + tile.first) * shape.rank, tile.columns, shape.rank, shape.rank, factor,
              kColumns);
    kernels.multiply_channels(product, factor, kColumns, whole, to, shape.columns);
    if (rest == 0) return;
    for (std::size_t k = 0; k < shape.rank; ++k) std::fill_n(factor + k * kColumns + tile.columns, kLanes - rest, 0.0F);
    kernels.multiply_channels(product, factor + whole, kColumns, kLanes, room.last.data(), kLanes);
    copy_columns(room.last.data(), kLanes, shape.rows, rest, to + whole, shape.columns);
  });
}

void thin_factor(const ThinShape& shape, std::span<const float> x, std::span<const float> left, const kernels::Kernels& kernels,
                 ThreadPool* pool, std::span<float> right) {
  std::vector<float> all(left.size());  // [batch, rank, rows]
  const std::size_t size = shape.rows * shape.rank;
  for (std::size_t b = 0; b < shape.batch; ++b) {
    transpose(left.data() + b * size, shape.rows, shape.rank, shape.rank, all.data() + b * size, shape.rows);
  }
  for_tiles(shape, pool, [&](const Tile& tile, Room& room) {
    const std::size_t whole = tile.columns / kLanes * kLanes;
    const std::size_t rest = tile.columns - whole;
    const kernels::ChannelMatrix product{shape.rank, shape.rows, all.data() + tile.matrix * size};
    float* const factor = room.factor.data();
    const float* const from = x.data() + tile.matrix * shape.rows * shape.columns + tile.first;
    kernels.multiply_channels(product, from, shape.columns, whole, factor, kColumns);
    if (rest > 0) {
      copy_columns(from + whole, shape.columns, shape.rows, rest, room.last.data(), kLanes);  // behind them: what was there, or 0
      kernels.multiply_channels(product, room.last.data(), kLanes, kLanes, factor + whole, kColumns);
    }
    transpose(factor, shape.rank, tile.columns, kColumns, right.data() + (tile.matrix * shape.columns + tile.first) * shape.rank,
              shape.rank);
  });
}

}  // namespace epipe::codec
