#include "epipe/codec/reflections.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "epipe/codec/kernels/scatter.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/parallel.h"
#include "epipe/codec/symmetric.h"
#include "epipe/codec/thin_product.h"

namespace epipe::codec {
namespace {

constexpr std::size_t kSampleRows = 2048;
constexpr int kIterations = 4;
constexpr std::size_t kRowsAtOnce = 64;
constexpr double kCoarseness = 1.5;  // 0.5 to 2 give the same error within 2 %

double dot(const double* a, const double* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Gram and Schmidt. Vectors [count, n]; one that depends on those before becomes 0.
void make_orthonormal(std::vector<double>& vectors, std::size_t count, std::size_t n) {
  constexpr double kSmall = 1e-6;
  for (std::size_t k = 0; k < count; ++k) {
    double* const own = vectors.data() + k * n;
    const double before = std::sqrt(dot(own, own, n));
    for (std::size_t twice = 0; twice < 2; ++twice) {
      for (std::size_t j = 0; j < k; ++j) {
        const double* const other = vectors.data() + j * n;
        const double share = dot(own, other, n);
        for (std::size_t i = 0; i < n; ++i) own[i] -= share * other[i];
      }
    }
    const double length = std::sqrt(dot(own, own, n));
    const double factor = length > kSmall * before && length > 0 ? 1 / length : 0;
    for (std::size_t i = 0; i < n; ++i) own[i] *= factor;
  }
}

// Some rows of a matrix, and the same transposed, with values of about 1.
class SampleRows {
 public:
  SampleRows(std::span<const float> rows, std::size_t features) : features_(features) {
    for (const std::size_t row : sampled_rows(rows.size() / features)) {
      const auto from = rows.begin() + static_cast<std::ptrdiff_t>(row * features);
      values_.insert(values_.end(), from, from + static_cast<std::ptrdiff_t>(features));
    }
    count_ = values_.size() / features;
    double energy = 0;
    for (const float v : values_) energy += static_cast<double>(v) * v;
    const double rms = std::sqrt(energy / static_cast<double>(values_.size()));
    const auto scale = static_cast<float>(rms > 0 ? 1 / rms : 1);
    for (float& v : values_) v *= scale;
    transposed_.resize(values_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t c = 0; c < features; ++c) transposed_[c * count_ + i] = values_[i * features + c];
    }
  }

  std::size_t count() const { return count_; }

  // Vectors [count, features] times all rows: [rows, count].
  std::vector<float> project(const std::vector<double>& vectors, std::size_t count, const kernels::Kernels& kernels,
                             ThreadPool* pool) const {
    std::vector<float> left(vectors.size());  // [features, count]
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t c = 0; c < features_; ++c) left[c * count + k] = static_cast<float>(vectors[k * features_ + c]);
    }
    std::vector<float> out(count_ * count);
    thin_factor({1, features_, count_, count}, transposed_, left, kernels, pool, out);
    return out;
  }

  // And back: sums over the rows of their features times what project() gave, as vectors again.
  std::vector<double> gather(const std::vector<float>& projected, std::size_t count, const kernels::Kernels& kernels,
                             ThreadPool* pool) const {
    std::vector<float> out(features_ * count);
    thin_factor({1, count_, features_, count}, values_, projected, kernels, pool, out);
    std::vector<double> vectors(out.size());
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t c = 0; c < features_; ++c) vectors[k * features_ + c] = out[c * count + k];
    }
    return vectors;
  }

 private:
  std::size_t features_;
  std::size_t count_ = 0;
  std::vector<float> values_, transposed_;
};

// Turns vectors within their span so that projections on them are not correlated, the strongest first.
Axes principal(const std::vector<double>& vectors, const std::vector<float>& projected, std::size_t features, std::size_t count) {
  Square moments{std::vector<double>(count * count), count};
  for (std::size_t row = 0; row < projected.size(); row += count) {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) moments(i, j) += static_cast<double>(projected[row + i]) * projected[row + j];
    }
  }
  const Square turn = diagonalize(moments);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return moments(a, a) > moments(b, b); });
  Axes axes{features, std::vector<double>(count * features), {}};
  for (std::size_t k = 0; k < count; ++k) {
    double* const own = axes.vectors.data() + k * features;
    for (std::size_t j = 0; j < count; ++j) {
      for (std::size_t c = 0; c < features; ++c) own[c] += turn(j, order[k]) * vectors[j * features + c];
    }
    axes.energies.push_back(std::max(0.0, moments(order[k], order[k])));
  }
  return axes;
}

}  // namespace

bool Reflections::fits(const wire::TensorSpec& tensor) {
  if (tensor.dims.size() != 3 || tensor.values() == 0) return false;
  return tensor.dims[2] >= kFewestFeatures && tensor.dims[2] <= kMostFeatures && most(tensor) > 0;
}

std::size_t Reflections::most(const wire::TensorSpec& tensor) {
  return std::min<std::size_t>({kMost, tensor.dims[0] * tensor.dims[1] / 2, tensor.dims[2] / 2});
}

// A scale is 2 / |w|^2, from float64 sums in ascending order.
Reflections::Reflections(std::vector<std::int32_t> levels, std::vector<std::uint8_t> shifts, std::size_t features)
    : levels_(std::move(levels)), shifts_(std::move(shifts)), features_(features) {
  constexpr std::size_t kSums = kernels::ReflectionRows::kSums;
  length_ = (features + kSums - 1) / kSums * kSums;
  rows_.resize(count() * length_);
  for (std::size_t k = 0; k < count(); ++k) {
    float* const w = rows_.data() + k * length_;
    const float unit = std::ldexp(1.0F, -shifts_[k]);  // exact, and so are its products
    for (std::size_t c = 0; c < features; ++c) w[c] = unit * static_cast<float>(levels_[k * features + c]);
    w[k] = 1;
    double square = 0;
    for (std::size_t c = 0; c < features; ++c) square += static_cast<double>(w[c]) * w[c];
    scales_.push_back(static_cast<float>(2 / square));
  }
}

void Reflections::apply(bool backwards, std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool,
                        std::span<float> out) const {
  const kernels::ReflectionRows reflections = this->rows();
  const std::size_t rows = x.size() / features_;
  share_items(pool, x.size(), (rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](std::size_t, const auto& next) {
    std::vector<float> room(length_);
    for (std::size_t first = next() * kRowsAtOnce; first < rows; first = next() * kRowsAtOnce) {
      for (std::size_t row = first; row < std::min(rows, first + kRowsAtOnce); ++row) {
        const float* const from = x.data() + row * features_;
        float* const to = out.data() + row * features_;
        if (std::all_of(from, from + features_, [](float v) { return v == 0; })) {  // sparse gradients: most rows
          std::fill_n(to, features_, 0.0F);
          continue;
        }
        std::copy_n(from, features_, room.data());
        kernels.reflect(reflections, backwards, room.data());
        std::copy_n(room.data(), features_, to);
      }
    }
  });
}

void Reflections::forward(std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool, std::span<float> out) const {
  apply(false, x, kernels, pool, out);
}

void Reflections::backward(std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool, std::span<float> out) const {
  apply(true, x, kernels, pool, out);
}

std::vector<std::size_t> sampled_rows(std::size_t rows) {
  const std::size_t count = std::min(rows, kSampleRows);
  std::vector<std::size_t> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(rows * i / count);
  return sample;
}

// Power iteration: all of them at once, made orthonormal each time.
Axes leading_axes(std::span<const float> rows, std::size_t features, std::size_t count, const kernels::Kernels& kernels, ThreadPool* pool) {
  const SampleRows sample(rows, features);
  std::vector<double> vectors(count * features);
  for (std::size_t i = 0; i < vectors.size(); ++i) vectors[i] = kernels::scattered(i);
  make_orthonormal(vectors, count, features);
  std::vector<float> projected = sample.project(vectors, count, kernels, pool);
  for (int i = 0; i < kIterations; ++i) {
    vectors = sample.gather(projected, count, kernels, pool);
    make_orthonormal(vectors, count, features);
    projected = sample.project(vectors, count, kernels, pool);
  }
  Axes axes = principal(vectors, projected, features, count);
  for (double& energy : axes.energies) energy /= static_cast<double>(sample.count());
  return axes;
}

// Each reflection takes e(k) to its axis, as those before have turned it; the rounding of one is seen by all that follow.
Reflections reflections_to(const Axes& axes, std::size_t count, double step, std::size_t rows) {
  const std::size_t n = axes.features;
  std::vector<double> left(axes.vectors.begin(), axes.vectors.begin() + static_cast<std::ptrdiff_t>(count * n));
  std::vector<std::int32_t> levels(count * n);
  std::vector<std::uint8_t> shifts;
  for (std::size_t k = 0; k < count; ++k) {
    double* const u = left.data() + k * n;
    std::fill_n(u, k, 0.0);
    const double length = std::sqrt(dot(u, u, n));
    // An error of w moves as much energy as the axis holds; an error of a symbol its own.
    const double energy = std::max(axes.energies[k], 1e-12) * static_cast<double>(rows);
    const double finest = std::round(-std::log2(kCoarseness * step / std::sqrt(energy)));
    shifts.push_back(static_cast<std::uint8_t>(std::clamp(finest, 0.0, static_cast<double>(Reflections::kMostShift))));
    std::vector<double> w(n);
    if (length > 1e-6) {
      const double pivot = -std::abs(u[k]) / length - 1;
      const double sign = u[k] > 0 ? -1 : 1;
      for (std::size_t c = k + 1; c < n; ++c) {
        const double level = std::round(std::ldexp(sign * u[c] / length / pivot, shifts[k]));
        levels[k * n + c] = static_cast<std::int32_t>(level);
        w[c] = std::ldexp(level, -shifts[k]);
      }
    }
    w[k] = 1;
    const double scale = 2 / dot(w.data(), w.data(), n);
    for (std::size_t j = k + 1; j < count; ++j) {
      double* const other = left.data() + j * n;
      const double amount = scale * dot(w.data(), other, n);
      for (std::size_t c = k; c < n; ++c) other[c] -= amount * w[c];
    }
  }
  return {std::move(levels), std::move(shifts), n};
}

}  // namespace epipe::codec
