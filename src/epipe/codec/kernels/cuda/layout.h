#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

// How an entropy codec lays a tensor out, in numbers: codec/planes.h says what they mean.
namespace epipe::kernels::cuda {

enum class Context : std::uint32_t { kNone = 0, kRunning = 1, kNeighbours = 2, kParents = 3 };

struct Layout {
  std::uint64_t units;        // values, or blocks
  std::uint64_t chunk_units;  // of all chunks but the last
  std::uint64_t chunks;
  std::uint64_t row;      // of rows: values per plane
  std::uint32_t symbols;  // per unit
  std::uint32_t levels;   // context levels of a band
  Context context;
  bool blocks;
  bool transform;
  float mean_gain;                      // of plane 0 of blocks: how much larger than a coefficient its symbol is, a power of 2; else 1
  std::uint32_t height, width;          // of a block
  std::uint32_t map_height, map_width;  // of the tensor
  std::uint32_t grid_height, grid_width;
  std::uint64_t mean_units;  // of rows: the first ones, whose symbols are mean_gain times as large
};

// Parts of a tensor, each laid out by itself one after the other: part p begins with unit first[p], or with unit p * units where `first`
// is null, and has `units` units, fewer at the end of the tensor.
struct Parts {
  const std::uint64_t* first;
  std::uint64_t units;
  std::uint64_t count;
};

}  // namespace epipe::kernels::cuda
