#include "epipe/codec/planes.h"

#include <algorithm>
#include <array>

#include "epipe/codec/kernels/contexts.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/kernels/transpose.h"

namespace epipe::codec {
namespace {

using kernels::kBatch;

constexpr std::size_t kMinRow = 32;         // symbols that may be decoded at once
constexpr std::size_t kMaxRow = 1U << 14U;  // rows longer than this have no neighbours in a chunk
constexpr std::size_t kBandEdge = 8;        // frequencies of larger blocks share bands
constexpr std::uint8_t kMaxMeanShift = 2;

// Edges of equal blocks, as large as allowed: 28 is 4 x 7 with blocks of up to 8.
std::size_t block_edge(std::size_t length, std::size_t largest) {
  const std::size_t count = (length + largest - 1) / largest;
  return (length + count - 1) / count;
}

// The first four frequencies have bands of their own, the other twelve share four.
std::size_t frequency_band(std::size_t frequency, std::size_t edge) {
  return edge <= kBandEdge || frequency < 4 ? frequency : 4 + (frequency - 4) / 3;
}

// Rows of a batch.
template <typename Float>
std::array<Float*, 4> four_rows(Float* first) {
  return {first, first + kBatch, first + 2 * kBatch, first + 3 * kBatch};
}

// By a power of 2.
void scale(std::span<float> values, float factor) {
  if (factor == 1) return;
  for (float& v : values) v *= factor;
}

std::size_t row_of(const wire::TensorSpec& tensor) {
  std::size_t product = 1;
  for (std::size_t i = tensor.dims.size(); i-- > 0;) {
    product *= tensor.dims[i];
    if (product >= kMinRow / 2) return product * ((kMinRow + product - 1) / product);
  }
  return kMinRow;
}

}  // namespace

bool Planes::fits(const wire::TensorSpec& tensor, Form form) {
  if (tensor.values() == 0 || form.mean_shift > (form.transform ? kMaxMeanShift : 0)) return false;
  if (form.edge == 0) {
    if (form.transform) return tensor.dims.size() == 3 && form.context == Context::kRunning && row_of(tensor) == tensor.dims[2];
    if (form.context == Context::kParents) return false;
    return form.context == Context::kNone || row_of(tensor) <= kMaxRow;
  }
  if ((form.edge != 8 && form.edge != 16) || form.context != Context::kParents) return false;
  if (tensor.dims.size() == 3) return tensor.dims[1] > 1;
  return tensor.dims.size() == 4 && tensor.dims[2] * tensor.dims[3] > 1;
}

Planes::Planes(const wire::TensorSpec& tensor, Form form, unsigned chunk_log2) : form_(form) {
  const std::size_t values = std::size_t{1} << chunk_log2;
  if (form.edge == 0) {
    units_ = tensor.values();
    row_ = form.context == Context::kNone ? values : row_of(tensor);
    chunk_units_ = std::max<std::size_t>(1, values / row_) * row_;
    if (form.transform) mean_units_ = tensor.dims[1] * tensor.dims[2];
    return;
  }
  const bool maps = tensor.dims.size() == 4;
  map_height_ = tensor.dims[maps ? 2 : 1];
  map_width_ = tensor.dims[maps ? 3 : 2];
  height_ = block_edge(map_height_, form.edge);
  width_ = maps ? block_edge(map_width_, form.edge) : 1;
  grid_height_ = (map_height_ + height_ - 1) / height_;
  grid_width_ = (map_width_ + width_ - 1) / width_;
  units_ = tensor.dims[0] * (maps ? tensor.dims[1] : 1) * grid_height_ * grid_width_;
  bands_ = band_of(height_ * width_ - 1) + 1;
  chunk_units_ = std::max<std::size_t>(1, values / (height_ * width_));
}

Chunk Planes::chunk(std::size_t index) const {
  const std::size_t first = index * chunk_units_;
  return part(first, std::min(chunk_units_, units_ - first));
}

std::size_t Planes::plane_count(const Chunk& chunk) const { return form_.edge == 0 ? (chunk.units + row_ - 1) / row_ : unit_symbols(); }

Plane Planes::plane(const Chunk& chunk, std::size_t index) const {
  if (form_.edge == 0) return {index * row_, std::min(row_, chunk.units - index * row_), 0};
  return {index * chunk.units, chunk.units, band_of(index) * levels()};
}

// Values by how many neighbours they have above and to the left; coefficients by their frequencies.
std::size_t Planes::band_of(std::size_t index) const {
  const std::size_t u = index / width_;
  const std::size_t v = index % width_;
  if (!form_.transform) return std::min<std::size_t>(u, 2) * std::min<std::size_t>(width_, 3) + std::min<std::size_t>(v, 2);
  return frequency_band(u, height_) * std::min(width_, kBandEdge) + frequency_band(v, width_);
}

std::size_t Planes::levels() const {
  if (form_.context == Context::kNone) return 1;
  return form_.edge == 0 ? 16 : 8;
}

std::span<const float> Planes::load(const Chunk& chunk, std::span<const float> x, const kernels::Kernels& kernels, Scratch& scratch) const {
  if (form_.edge == 0) {
    const auto rows = x.subspan(chunk.first, chunk.units);
    if (form_.mean_shift == 0 || means_in(chunk) == 0) return rows;
    scratch.room.assign(rows.begin(), rows.end());
    scale(std::span(scratch.room).first(means_in(chunk)), form_.mean_gain());
    return scratch.room;
  }
  const kernels::BlockTransform transform{height_, width_, kernels::forward_dct(height_), kernels::forward_dct(width_)};
  auto& [room, batch, last] = scratch;
  room.resize(chunk.symbols + kBatch);
  batch.resize(unit_symbols() * kBatch);
  last.resize(unit_symbols() * kBatch);
  for (std::size_t b = 0; b < chunk.units; b += kBatch) {
    const std::size_t count = std::min(kBatch, chunk.units - b);
    gather(chunk.first + b, count, x, batch.data());
    if (form_.transform && count == kBatch) {
      kernels.transform_blocks(transform, batch.data(), kBatch, room.data() + b, chunk.units);
      continue;
    }
    if (form_.transform) kernels.transform_blocks(transform, batch.data(), kBatch, last.data(), kBatch);
    const auto& from = form_.transform ? last : batch;
    for (std::size_t k = 0; k < unit_symbols(); ++k) std::copy_n(from.data() + k * kBatch, count, room.data() + k * chunk.units + b);
  }
  scale(std::span(room).first(chunk.units), form_.mean_gain());
  return {room.data(), chunk.symbols};
}

void Planes::store(const Chunk& chunk, std::span<float> y, const kernels::Kernels& kernels, Scratch& scratch, std::span<float> x) const {
  if (form_.edge == 0) {
    scale(y.first(means_in(chunk)), 1 / form_.mean_gain());
    float* const to = x.data() + chunk.first;
    if (to != y.data()) std::copy_n(y.data(), chunk.units, to);
    return;
  }
  const kernels::BlockTransform transform{height_, width_, kernels::inverse_dct(height_), kernels::inverse_dct(width_)};
  auto& batch = scratch.batch;
  batch.resize(unit_symbols() * kBatch);
  scale(y.first(chunk.units), 1 / form_.mean_gain());
  for (std::size_t b = 0; b < chunk.units; b += kBatch) {
    // The lanes beyond the last block read what follows in `y` and are not kept.
    if (form_.transform) {
      kernels.transform_blocks(transform, y.data() + b, chunk.units, batch.data(), kBatch);
    } else {
      for (std::size_t k = 0; k < unit_symbols(); ++k) std::copy_n(y.data() + k * chunk.units + b, kBatch, batch.data() + k * kBatch);
    }
    scatter(chunk.first + b, std::min(kBatch, chunk.units - b), batch.data(), x);
  }
}

// One block after the other, so that nothing is divided for each of them.
std::array<Planes::Place, kBatch> Planes::places_of(std::size_t first, std::size_t count) const {
  std::size_t column = first % grid_width_;
  std::size_t row = first / grid_width_ % grid_height_;
  std::size_t map = first / (grid_width_ * grid_height_) * map_height_ * map_width_;
  std::array<Place, kBatch> places{};
  for (std::size_t lane = 0; lane < count; ++lane) {
    places[lane] = {map, row * height_, column * width_, std::min(width_, map_width_ - column * width_)};
    if (++column < grid_width_) continue;
    column = 0;
    if (++row < grid_height_) continue;
    row = 0;
    map += map_height_ * map_width_;
  }
  return places;
}

// How many columns of a full batch of whole blocks lie in fours.
std::size_t Planes::fours_of(std::size_t count) const {
  return count == kBatch && map_width_ % width_ == 0 && map_height_ % height_ == 0 ? width_ / 4 * 4 : 0;
}

// A full batch of columns, as those of text, that are neighbours in the tensor: a row of the batch is a stretch of the tensor.
bool Planes::side_by_side(std::size_t first, std::size_t count) const {
  return width_ == 1 && count == kBatch && first % grid_width_ + kBatch <= grid_width_;
}

// Blocks to lanes: batch[k][lane] is value k of block first + lane. A block that reaches beyond the map repeats its last row and column.
void Planes::gather(std::size_t first, std::size_t count, std::span<const float> x, float* batch) const {
  const bool columns = side_by_side(first, count);
  const std::size_t rows_apart = columns ? 1 : count;
  const auto places = places_of(first, rows_apart);
  const std::size_t fours = fours_of(count);
  std::array<const float*, kBatch> rows;
  for (std::size_t r = 0; r < height_; ++r) {
    for (std::size_t lane = 0; lane < rows_apart; ++lane) {
      const Place& p = places[lane];
      const std::size_t at = p.map + std::min(p.top + r, map_height_ - 1) * map_width_ + p.left;
      rows[lane] = x.data() + at;
      __builtin_prefetch(x.data() + std::min(at + ahead(), x.size() - 1));
    }
    float* const out = batch + r * width_ * kBatch;
    if (columns) {
      std::copy_n(rows[0], kBatch, out);
      continue;
    }
    for (std::size_t c = 0; c < fours; c += 4) {
      const std::array<float*, 4> to = four_rows(out + c * kBatch);
      for (std::size_t lane = 0; lane < kBatch; lane += 4) kernels::transpose_4x4(rows.data() + lane, c, to.data(), lane);
    }
    for (std::size_t c = fours; c < width_; ++c) {
      for (std::size_t lane = 0; lane < count; ++lane) out[c * kBatch + lane] = rows[lane][std::min(c, places[lane].width - 1)];
    }
  }
}

// And back; what lies beyond the map is dropped.
void Planes::scatter(std::size_t first, std::size_t count, const float* batch, std::span<float> x) const {
  const bool columns = side_by_side(first, count);
  const std::size_t rows_apart = columns ? 1 : count;
  const auto places = places_of(first, rows_apart);
  const std::size_t fours = fours_of(count);
  std::array<float*, kBatch> rows;
  for (std::size_t r = 0; r < height_; ++r) {
    for (std::size_t lane = 0; lane < rows_apart; ++lane) {
      const Place& p = places[lane];
      const std::size_t at = p.map + std::min(p.top + r, map_height_ - 1) * map_width_ + p.left;
      rows[lane] = x.data() + at;
      __builtin_prefetch(x.data() + std::min(at + ahead(), x.size() - 1), 1);
    }
    const float* const from = batch + r * width_ * kBatch;
    if (columns) {
      if (places[0].top + r < map_height_) std::copy_n(from, kBatch, rows[0]);
      continue;
    }
    for (std::size_t c = 0; c < fours; c += 4) {
      const std::array<const float*, 4> four = four_rows(from + c * kBatch);
      for (std::size_t lane = 0; lane < kBatch; lane += 4) kernels::transpose_4x4(four.data(), lane, rows.data() + lane, c);
    }
    for (std::size_t lane = 0; lane < count; ++lane) {
      if (places[lane].top + r >= map_height_) continue;
      for (std::size_t c = fours; c < places[lane].width; ++c) rows[lane][c] = from[c * kBatch + lane];
    }
  }
}

// ---- contexts ----

ContextModel::ContextModel(const Planes& planes, const Chunk& chunk, const kernels::Kernels& kernels)
    : planes_(planes), chunk_(chunk), kernels_(kernels) {
  if (planes.form().context == Context::kRunning) means_.resize(planes.row());
  if (planes.form().context == Context::kParents) zeros_.resize(chunk.units);
}

void ContextModel::levels(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out) {
  const Plane plane = planes_.plane(chunk_, index);
  const Context context = planes_.form().context;
  if (context == Context::kParents) return parents(index, magnitudes, out);
  if (context == Context::kNone || index == 0) {
    std::fill_n(out, plane.length, std::uint8_t{0});
    return;
  }
  const std::uint8_t* const before = magnitudes + planes_.plane(chunk_, index - 1).begin;
  if (context == Context::kRunning) return running(index, before, plane.length, out);
  kernels_.neighbour_levels(before, plane.length, out);
}

void ContextModel::parents(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out) const {
  const std::size_t width = planes_.width();
  const std::size_t u = index / width;
  const std::size_t v = index % width;
  const auto at = [&](bool exists, std::size_t distance) {
    return exists ? magnitudes + (index - distance) * chunk_.units : zeros_.data();
  };
  const kernels::ParentPlanes planes{at(u >= 1, width), at(v >= 1, 1), at(u >= 1 && v >= 1, width + 1), at(u >= 2, 2 * width),
                                     at(v >= 2, 2)};
  kernels_.parent_levels(planes, chunk_.units, out);
}

// The first row counts eight times, as if it had been the only one so far.
void ContextModel::running(std::size_t index, const std::uint8_t* before, std::size_t length, std::uint8_t* out) {
  if (index == 1) {
    for (std::size_t i = 0; i < length; ++i) means_[i] = static_cast<std::uint16_t>(128 * before[i]);
  }
  kernels_.running_levels(before, length, means_.data(), out);
}

}  // namespace epipe::codec
