#pragma once

#include <cstddef>
#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"
#include "epipe/codec/kernels/kernels.h"

// topk on the device: which values are kept, where they are, and back. Tensors of fewer than 2^32 values.
namespace epipe::kernels::cuda {

// Values that one block of these kernels takes.
inline constexpr std::size_t kCompactTile = 4096;
constexpr std::size_t compact_tiles(std::size_t n) { return (n + kCompactTile - 1) / kCompactTile; }

// Per tile, then in front of each tile: values above the threshold, and equal to it. Three arrays of compact_tiles(n) + 1 places.
struct TileCounts {
  std::uint32_t* above;
  std::uint32_t* equal;
  std::uint32_t* kept;  // in front of each tile; the last place is their number
};

// Magnitudes above the threshold, then of those equal to it the first ones, `most` together; zeros never. Fills counts.kept.
void count_kept(const float* x, std::size_t n, const Key* threshold, std::uint32_t most, const TileCounts& counts, Stream stream);
// Their positions and values in ascending order, after count_kept() with the same arguments.
void write_kept(const float* x, std::size_t n, const Key* threshold, std::uint32_t most, const TileCounts& counts, std::uint32_t* positions,
                float* values, Stream stream);

// Positions of `bits` bits each, or a bitmap of n bits, as whole words that were zero.
void pack_positions(const std::uint32_t* positions, std::size_t count, unsigned bits, std::uint32_t* out, Stream stream);
void set_bits(const std::uint32_t* positions, std::size_t count, std::uint32_t* bitmap, Stream stream);

// out[position] = value into zeros. *wrong becomes 1 unless the positions ascend below n; it is not cleared.
void scatter_packed(const std::uint32_t* in, std::size_t count, unsigned bits, const float* values, std::size_t n, float* out,
                    std::uint32_t* wrong, Stream stream);
// The same from a bitmap, n bits in whole words. *wrong becomes 1 unless exactly `count` bits below n, and none beyond, are set.
// `counts` holds compact_tiles(n) + 1 places.
void scatter_bitmap(const std::uint32_t* bitmap, std::size_t count, const float* values, std::size_t n, float* out, std::uint32_t* counts,
                    std::uint32_t* wrong, Stream stream);

}  // namespace epipe::kernels::cuda
