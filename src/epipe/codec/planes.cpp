#include "epipe/codec/planes.h"

#include <algorithm>
#include <array>

#include "epipe/codec/kernels/transform.h"

namespace epipe::codec {
namespace {

using kernels::kBatch;

constexpr std::size_t kMinRow = 32;         // symbols that may be decoded at once
constexpr std::size_t kMaxRow = 1U << 14U;  // rows longer than this have no neighbours in a chunk
constexpr std::size_t kBandEdge = 8;        // frequencies of larger blocks share bands

// Edges of equal blocks, as large as allowed: 28 is 4 x 7 with blocks of up to 8.
std::size_t block_edge(std::size_t length, std::size_t largest) {
  const std::size_t count = (length + largest - 1) / largest;
  return (length + count - 1) / count;
}

// The first four frequencies have bands of their own, the other twelve share four.
std::size_t band_of(std::size_t frequency, std::size_t edge) {
  return edge <= kBandEdge || frequency < 4 ? frequency : 4 + (frequency - 4) / 3;
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
  if (tensor.values() == 0) return false;
  if (form.edge == 0) {
    if (form.context == Context::kParents) return false;
    return form.context == Context::kNone || row_of(tensor) <= kMaxRow;
  }
  if ((form.edge != 8 && form.edge != 16) || form.context != Context::kParents || tensor.dims.size() != 4) return false;
  return tensor.dims[2] * tensor.dims[3] > 1;
}

Planes::Planes(const wire::TensorSpec& tensor, Form form, unsigned chunk_log2) : form_(form) {
  const std::size_t values = std::size_t{1} << chunk_log2;
  if (form.edge == 0) {
    units_ = tensor.values();
    row_ = form.context == Context::kNone ? values : row_of(tensor);
    chunk_units_ = std::max<std::size_t>(1, values / row_) * row_;
    return;
  }
  map_height_ = tensor.dims[2];
  map_width_ = tensor.dims[3];
  height_ = block_edge(map_height_, form.edge);
  width_ = block_edge(map_width_, form.edge);
  grid_height_ = (map_height_ + height_ - 1) / height_;
  grid_width_ = (map_width_ + width_ - 1) / width_;
  units_ = tensor.dims[0] * tensor.dims[1] * grid_height_ * grid_width_;
  bands_ = std::min(height_, kBandEdge) * std::min(width_, kBandEdge);
  chunk_units_ = std::max<std::size_t>(1, values / (height_ * width_));
}

Chunk Planes::chunk(std::size_t index) const {
  const std::size_t first = index * chunk_units_;
  return part(first, std::min(chunk_units_, units_ - first));
}

std::size_t Planes::plane_count(const Chunk& chunk) const {
  return form_.edge == 0 ? (chunk.units + row_ - 1) / row_ : unit_symbols();
}

Plane Planes::plane(const Chunk& chunk, std::size_t index) const {
  if (form_.edge == 0) return {index * row_, std::min(row_, chunk.units - index * row_), 0};
  const std::size_t band = band_of(index / width_, height_) * std::min(width_, kBandEdge) + band_of(index % width_, width_);
  return {index * chunk.units, chunk.units, band * levels()};
}

std::size_t Planes::levels() const {
  if (form_.context == Context::kNone) return 1;
  return form_.edge == 0 ? 16 : 8;
}

std::span<const float> Planes::load(const Chunk& chunk, std::span<const float> x, const kernels::Kernels& kernels,
                                    std::vector<float>& room) const {
  if (form_.edge == 0) return x.subspan(chunk.first, chunk.units);
  const kernels::BlockTransform transform{height_, width_, kernels::forward_dct(height_), kernels::forward_dct(width_)};
  std::vector<float> batch(unit_symbols() * kBatch);
  room.resize(chunk.symbols + kBatch);
  std::vector<float> last(unit_symbols() * kBatch);
  for (std::size_t b = 0; b < chunk.units; b += kBatch) {
    const std::size_t count = std::min(kBatch, chunk.units - b);
    for (std::size_t lane = 0; lane < count; ++lane) gather(chunk.first + b + lane, lane, x, batch.data());
    if (count == kBatch) {
      kernels.transform_blocks(transform, batch.data(), kBatch, room.data() + b, chunk.units);
      continue;
    }
    kernels.transform_blocks(transform, batch.data(), kBatch, last.data(), kBatch);
    for (std::size_t k = 0; k < unit_symbols(); ++k) std::copy_n(last.data() + k * kBatch, count, room.data() + k * chunk.units + b);
  }
  return {room.data(), chunk.symbols};
}

void Planes::store(const Chunk& chunk, std::span<const float> y, const kernels::Kernels& kernels, std::span<float> x) const {
  if (form_.edge == 0) {
    std::copy_n(y.begin(), chunk.units, x.begin() + static_cast<std::ptrdiff_t>(chunk.first));
    return;
  }
  const kernels::BlockTransform transform{height_, width_, kernels::inverse_dct(height_), kernels::inverse_dct(width_)};
  std::vector<float> batch(unit_symbols() * kBatch);
  for (std::size_t b = 0; b < chunk.units; b += kBatch) {
    // The lanes beyond the last block read what follows in `y` and are not kept.
    kernels.transform_blocks(transform, y.data() + b, chunk.units, batch.data(), kBatch);
    for (std::size_t lane = 0; lane < std::min(kBatch, chunk.units - b); ++lane) scatter(chunk.first + b + lane, lane, batch.data(), x);
  }
}

// A block that reaches beyond the map repeats the map's last row and column.
void Planes::gather(std::size_t block, std::size_t lane, std::span<const float> x, float* batch) const {
  const std::size_t column = block % grid_width_ * width_;
  const std::size_t top = block / grid_width_ % grid_height_ * height_;
  const float* const map = x.data() + block / (grid_width_ * grid_height_) * map_height_ * map_width_;
  const std::size_t inside = std::min(width_, map_width_ - column);
  float* out = batch + lane;
  for (std::size_t r = 0; r < height_; ++r) {
    const float* const from = map + std::min(top + r, map_height_ - 1) * map_width_ + column;
    for (std::size_t c = 0; c < inside; ++c, out += kBatch) *out = from[c];
    for (std::size_t c = inside; c < width_; ++c, out += kBatch) *out = from[inside - 1];
  }
}

void Planes::scatter(std::size_t block, std::size_t lane, const float* batch, std::span<float> x) const {
  const std::size_t column = block % grid_width_ * width_;
  const std::size_t top = block / grid_width_ % grid_height_ * height_;
  float* const map = x.data() + block / (grid_width_ * grid_height_) * map_height_ * map_width_;
  const std::size_t inside = std::min(width_, map_width_ - column);
  for (std::size_t r = 0; r < std::min(height_, map_height_ - top); ++r) {
    float* const to = map + (top + r) * map_width_ + column;
    for (std::size_t c = 0; c < inside; ++c) to[c] = batch[(r * width_ + c) * kBatch + lane];
  }
}

// ---- contexts ----

namespace {

// How many of the ascending limits a value reaches.
template <typename T, std::size_t kCount>
inline std::uint8_t count_reached(T value, const std::array<T, kCount>& limits) {
  std::uint8_t reached = 0;
  for (const T limit : limits) reached = static_cast<std::uint8_t>(reached + (value >= limit ? 1 : 0));
  return reached;
}

// Sums of magnitudes around a symbol, in sixteenths; level 0 is the first row of a chunk, which has nothing before it.
constexpr std::array<std::uint16_t, 14> kRowLimits = {1, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};
constexpr std::array<std::uint8_t, 7> kParentLimits = {1, 2, 3, 5, 8, 14, 24};

}  // namespace

ContextModel::ContextModel(const Planes& planes, const Chunk& chunk) : planes_(planes), chunk_(chunk) {
  if (planes.form().context == Context::kRunning) means_.resize(planes.row());
}

void ContextModel::levels(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out) {
  const Plane plane = planes_.plane(chunk_, index);
  const std::uint8_t* const before = magnitudes + (index == 0 ? 0 : planes_.plane(chunk_, index - 1).begin);
  const Context context = planes_.form().context;
  if (context == Context::kNone || (context != Context::kParents && index == 0)) {
    std::fill_n(out, plane.length, std::uint8_t{0});
  } else if (context == Context::kParents) {
    parents(index, magnitudes, out);
  } else if (context == Context::kRunning) {
    running(before, plane.length, index == 1, out);
  } else {
    neighbours(before, plane.length, out);
  }
}

// Twice the coefficients one frequency lower in each direction, plus those two lower and the diagonal one.
void ContextModel::parents(std::size_t index, const std::uint8_t* magnitudes, std::uint8_t* out) const {
  const std::size_t n = chunk_.units;
  const std::size_t width = planes_.width();
  const std::size_t u = index / width;
  const std::size_t v = index % width;
  std::fill_n(out, n, std::uint8_t{0});
  const auto add = [&](bool exists, std::size_t distance, unsigned weight) {
    if (!exists) return;
    const std::uint8_t* const from = magnitudes + (index - distance) * n;
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(out[i] + weight * from[i]);
  };
  add(u >= 1, width, 2);
  add(v >= 1, 1, 2);
  add(u >= 1 && v >= 1, width + 1, 1);
  add(u >= 2, 2 * width, 1);
  add(v >= 2, 2, 1);
  for (std::size_t i = 0; i < n; ++i) out[i] = count_reached(out[i], kParentLimits);
}

void ContextModel::running(const std::uint8_t* before, std::size_t length, bool second, std::uint8_t* out) {
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint16_t mean = second ? static_cast<std::uint16_t>(128 * before[i])
                                      : static_cast<std::uint16_t>(means_[i] - (means_[i] >> 3U) + 16 * before[i]);
    means_[i] = mean;
    out[i] = static_cast<std::uint8_t>(1 + count_reached(mean, kRowLimits));
  }
}

void ContextModel::neighbours(const std::uint8_t* before, std::size_t length, std::uint8_t* out) {
  const auto level = [](unsigned sum) { return static_cast<std::uint8_t>(1 + count_reached(static_cast<std::uint16_t>(16 * sum), kRowLimits)); };
  for (std::size_t i = 1; i + 1 < length; ++i) out[i] = level(2U * before[i] + before[i - 1] + before[i + 1]);
  out[0] = level(2U * before[0] + (length > 1 ? before[1] : 0U));
  if (length > 1) out[length - 1] = level(2U * before[length - 1] + before[length - 2]);
}

}  // namespace epipe::codec
