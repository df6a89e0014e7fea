#include "epipe/codec/kernels/transform.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "epipe/codec/kernels/fused.h"
#include "epipe/codec/kernels/scalar.h"

namespace epipe::kernels {
namespace {

struct Matrices {
  std::array<std::vector<float>, kMaxEdge + 1> forward;
  std::array<std::vector<float>, kMaxEdge + 1> inverse;
};

// In extended precision, so that rounding to float32 gives the nearest whatever the library's last bit is.
float dct_entry(std::size_t n, std::size_t k, std::size_t x) {
  const auto points = static_cast<long double>(n);
  const long double scale = std::sqrt((k == 0 ? 1.0L : 2.0L) / points);
  return static_cast<float>(scale *
                            std::cos(std::numbers::pi_v<long double> * static_cast<long double>(k * (2 * x + 1) % (4 * n)) / (2 * points)));
}

Matrices make_matrices() {
  Matrices all;
  for (std::size_t n = 1; n <= kMaxEdge; ++n) {
    all.forward[n].resize(n * n);
    all.inverse[n].resize(n * n);
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t x = 0; x < n; ++x) all.forward[n][k * n + x] = all.inverse[n][x * n + k] = dct_entry(n, k, x);
    }
  }
  return all;
}

const Matrices& matrices() {
  static const Matrices kAll = make_matrices();
  return kAll;
}

}  // namespace

const float* forward_dct(std::size_t n) { return matrices().forward[n].data(); }
const float* inverse_dct(std::size_t n) { return matrices().inverse[n].data(); }

namespace scalar_impl {

// First along the width, then along the height; each sum starts with a product and continues with fma in ascending order.
void transform_blocks(const BlockTransform& t, const float* in, std::size_t in_stride, float* out, std::size_t out_stride) {
  std::array<float, kMaxEdge * kMaxEdge> half;
  for (std::size_t g = 0; g < kBatch; ++g) {
    for (std::size_t r = 0; r < t.height; ++r) {
      for (std::size_t v = 0; v < t.width; ++v) {
        float sum = t.columns[v * t.width] * in[r * t.width * in_stride + g];
        for (std::size_t c = 1; c < t.width; ++c) sum = fused(t.columns[v * t.width + c], in[(r * t.width + c) * in_stride + g], sum);
        half[r * t.width + v] = sum;
      }
    }
    for (std::size_t u = 0; u < t.height; ++u) {
      for (std::size_t v = 0; v < t.width; ++v) {
        float sum = t.rows[u * t.height] * half[v];
        for (std::size_t r = 1; r < t.height; ++r) sum = fused(t.rows[u * t.height + r], half[r * t.width + v], sum);
        out[(u * t.width + v) * out_stride + g] = sum;
      }
    }
  }
}

// Each sum starts with a product and continues with fma in ascending order.
void multiply_channels(const ChannelMatrix& by, const float* in, std::size_t in_stride, std::size_t places, float* out,
                       std::size_t out_stride) {
  for (std::size_t k = 0; k < by.rows; ++k) {
    const float* const row = by.matrix + k * by.channels;
    for (std::size_t p = 0; p < places; ++p) {
      float sum = row[0] * in[p];
      for (std::size_t c = 1; c < by.channels; ++c) sum = fused(row[c], in[c * in_stride + p], sum);
      out[k * out_stride + p] = sum;
    }
  }
}

float add_up(float* sums, std::size_t count) {
  for (std::size_t half = count / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// Product i goes to sum i mod kSums, by fma.
void reflect(const ReflectionRows& reflections, bool backwards, float* row) {
  constexpr std::size_t kSums = ReflectionRows::kSums;
  for (std::size_t i = 0; i < reflections.count; ++i) {
    const std::size_t k = backwards ? reflections.count - 1 - i : i;
    const float* const w = reflections.rows + k * reflections.length;
    std::array<float, kSums> sums{};
    for (std::size_t c = 0; c < reflections.length; ++c) sums[c % kSums] = fused(w[c], row[c], sums[c % kSums]);
    const float amount = -(reflections.scales[k] * add_up(sums.data(), kSums));
    for (std::size_t c = 0; c < reflections.length; ++c) row[c] = fused(w[c], amount, row[c]);
  }
}

}  // namespace scalar_impl
}  // namespace epipe::kernels
