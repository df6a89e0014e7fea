#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/wire/tensor_spec.h"

// How the entropy codecs lay a tensor out: as units in chunks, and each chunk as planes of symbols.
//
//   rows     a unit is a value; a plane is a row of consecutive values
//   blocks   a unit is a block; plane k holds value k, or coefficient k of the DCT, of every block of the chunk. Blocks are squares of
//            the maps of [N, C, H, W], and stretches along T of [N, T, F]
//
// Chunks are independent of each other. The context of a symbol is made from planes before its own, so all symbols of a plane can be
// coded side by side.
namespace epipe::codec {

enum class Context : std::uint8_t {
  kNone = 0,
  kRunning = 1,     // a running mean of the magnitudes in the same column of the rows before
  kNeighbours = 2,  // the three nearest magnitudes in the row before
  kParents = 3,     // magnitudes above and to the left in the same block, which are those at lower frequencies
};

// What the encoder chooses per tensor.
struct Form {
  std::uint8_t edge = 0;  // the largest edge of a block: 0 (no blocks), 8 or 16
  Context context = Context::kNone;
  bool transform = false;       // of the blocks; rows: those of spectra (spectra.h), which had it before
  std::uint8_t mean_shift = 0;  // with a transform: means, plane 0 or the first frequency, have 1/2^mean_shift of the step; at most 2

  float mean_gain() const { return static_cast<float>(1U << mean_shift); }
  bool operator==(const Form&) const = default;
};

// A run of units that is coded by itself.
struct Chunk {
  std::size_t first = 0;
  std::size_t units = 0;
  std::size_t symbols = 0;
};

struct Plane {
  std::size_t begin;  // in the chunk's symbols
  std::size_t length;
  std::size_t slot;  // of its first context level
};

class Planes {
 public:
  // Warm buffers of one thread.
  struct Scratch {
    std::vector<float> room, batch, last;
  };

  // The form must be one that fits() this shape.
  Planes(const wire::TensorSpec& tensor, Form form, unsigned chunk_log2);

  static bool fits(const wire::TensorSpec& tensor, Form form);

  const Form& form() const { return form_; }
  std::size_t units() const { return units_; }
  std::size_t unit_symbols() const { return height_ * width_; }
  std::size_t symbols() const { return units_ * unit_symbols(); }
  std::size_t chunk_units() const { return chunk_units_; }
  std::size_t chunks() const { return (units_ + chunk_units_ - 1) / chunk_units_; }
  Chunk chunk(std::size_t index) const;
  Chunk part(std::size_t first, std::size_t units) const { return {first, units, units * unit_symbols()}; }

  std::size_t row() const { return row_; }
  std::size_t mean_units() const { return mean_units_; }  // of rows: the first ones, those of means
  std::size_t plane_count(const Chunk& chunk) const;
  Plane plane(const Chunk& chunk, std::size_t index) const;

  // A slot is a band and a context level; each slot names the table of its symbols.
  std::size_t levels() const;
  std::size_t slots() const { return bands_ * levels(); }

  // How much larger than a coefficient its symbol is.
  float gain(const Chunk& chunk, std::size_t plane) const {
    return (form_.edge == 0 ? chunk.first + plane * row_ < mean_units_ : plane == 0) ? form_.mean_gain() : 1.0F;
  }

  // The chunk's symbols as floats, plane after plane: transformed, or just where they lie in `x`.
  std::span<const float> load(const Chunk& chunk, std::span<const float> x, const kernels::Kernels& kernels, Scratch& scratch) const;
  // And back. `y` holds the chunk's symbols and, for blocks, kernels::kBatch floats more; it is not kept. Rows may lie there already.
  void store(const Chunk& chunk, std::span<float> y, const kernels::Kernels& kernels, Scratch& scratch, std::span<float> x) const;

  std::size_t height() const { return height_; }
  std::size_t width() const { return width_; }
  std::size_t map_height() const { return map_height_; }
  std::size_t map_width() const { return map_width_; }
  std::size_t grid_height() const { return grid_height_; }
  std::size_t grid_width() const { return grid_width_; }

 private:
  std::size_t band_of(std::size_t index) const;
  struct Place {
    std::size_t map;  // where its first value lies in the tensor
    std::size_t top, left;
    std::size_t width;  // of what lies inside the map
  };
  std::array<Place, kernels::kBatch> places_of(std::size_t first, std::size_t count) const;
  std::size_t fours_of(std::size_t count) const;
  // How far the next batch lies behind this one, about: the hardware does not foresee rows of blocks.
  std::size_t ahead() const { return kernels::kBatch * unit_symbols(); }
  std::size_t means_in(const Chunk& chunk) const { return std::min(chunk.units, mean_units_ - std::min(mean_units_, chunk.first)); }
  bool side_by_side(std::size_t first, std::size_t count) const;
  void gather(std::size_t first, std::size_t count, std::span<const float> x, float* batch) const;
  void scatter(std::size_t first, std::size_t count, const float* batch, std::span<float> x) const;

  Form form_;
  std::size_t units_ = 0;
  std::size_t chunk_units_ = 1;
  std::size_t row_ = 1;
  std::size_t mean_units_ = 0;  // of rows of spectra: the first frequency's
  std::size_t bands_ = 1;
  std::size_t map_height_ = 1, map_width_ = 1;  // of the tensor
  std::size_t height_ = 1, width_ = 1;          // of a block
  std::size_t grid_height_ = 1, grid_width_ = 1;
};

// Gives the context level of every symbol, plane after plane from the first on.
class ContextModel {
 public:
  ContextModel(const Planes& planes, const Chunk& chunk, const kernels::Kernels& kernels);
  // `magnitudes` are the chunk's, known for all planes before `index`, which must ascend from 0.
  void levels(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out);

 private:
  void parents(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out) const;
  void running(std::size_t index, const std::uint8_t* before, std::size_t length, std::uint8_t* out);

  const Planes& planes_;
  Chunk chunk_;
  const kernels::Kernels& kernels_;
  std::vector<std::uint16_t> means_;  // running: by column
  std::vector<std::uint8_t> zeros_;   // parents: in place of planes that do not exist
};

}  // namespace epipe::codec
