// kmeans: up to 2^B scalar centroids fitted to the tensor by Lloyd's iteration; a code is the index of the nearest one.
//
//   payload:  u32 count | count x f32 centroid, ascending | n codes of B bits, packed
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/codec/kernels/sample.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

constexpr int kIterations = 30;
constexpr std::size_t kMaxSample = 1U << 20;

// Ascending values with running sums, so that the mean of any stretch costs two look-ups.
class SortedSample {
 public:
  explicit SortedSample(std::vector<kernels::Key> keys) {
    kernels::sort_keys(keys);
    values_.reserve(keys.size());
    sums_.reserve(keys.size() + 1);
    sums_.push_back(0);
    for (const auto key : keys) {
      values_.push_back(kernels::key_value(key));
      sums_.push_back(sums_.back() + values_.back());
    }
  }
  const std::vector<float>& values() const { return values_; }
  double mean(std::size_t begin, std::size_t end) const { return (sums_[end] - sums_[begin]) / static_cast<double>(end - begin); }

 private:
  std::vector<float> values_;
  std::vector<double> sums_;
};

float midpoint(float a, float b) { return 0.5F * a + 0.5F * b; }

// The distinct values when they all fit, else centroids spread between equal counts and equal (width)^(2/3) per cell: the
// second is where a fine quantizer puts its points (Panter and Dite), the first keeps one on every heavy value.
std::vector<float> initial_centroids(const SortedSample& sample, std::size_t count) {
  std::vector<float> distinct = sample.values();
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() <= count) return distinct;

  const auto& v = sample.values();
  const std::size_t cells = std::min(v.size() - 1, 4 * count);
  const auto edge = [&](std::size_t cell) { return v[cell * (v.size() - 1) / cells]; };
  std::vector<double> width_mass(cells + 1);
  for (std::size_t i = 0; i < cells; ++i) {
    width_mass[i + 1] = width_mass[i] + std::pow(static_cast<double>(edge(i + 1)) - static_cast<double>(edge(i)), 2.0 / 3);
  }
  std::vector<float> centroids;
  std::size_t cell = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double target = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    const auto mass = [&](std::size_t c) {
      return 0.5 * width_mass[c] / width_mass[cells] + 0.5 * static_cast<double>(c) / static_cast<double>(cells);
    };
    while (cell + 1 < cells && mass(cell + 1) < target) ++cell;
    const double within = std::clamp((target - mass(cell)) / (mass(cell + 1) - mass(cell)), 0.0, 1.0);
    centroids.push_back(static_cast<float>(edge(cell) * (1 - within) + edge(cell + 1) * within));
  }
  centroids.erase(std::unique(centroids.begin(), centroids.end()), centroids.end());
  return centroids;
}

// Lloyd: each centroid moves to the mean of the values nearest to it, until none moves to another stretch.
void refine(const SortedSample& sample, std::vector<float>& centroids) {
  const auto& v = sample.values();
  std::vector<std::size_t> ends(centroids.size(), 0);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    bool moved = false;
    std::size_t begin = 0;
    for (std::size_t c = 0; c < centroids.size(); ++c) {
      const auto first = v.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = c + 1 == centroids.size() ? v.end() : std::lower_bound(first, v.end(), midpoint(centroids[c], centroids[c + 1]));
      const auto end = static_cast<std::size_t>(last - v.begin());
      moved |= ends[c] != end;
      ends[c] = end;
      begin = end;
    }
    if (!moved) return;
    begin = 0;
    for (std::size_t c = 0; c < centroids.size(); ++c) {
      if (ends[c] > begin) centroids[c] = static_cast<float>(sample.mean(begin, ends[c]));
      begin = ends[c];
    }
  }
}

class KMeans final : public Codec {
 public:
  KMeans(unsigned bits, const CodecOptions& options) : bits_(bits), options_(options) {}

  std::string spec() const override { return fmt::format("kmeans:{}", bits_); }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    const std::size_t n = tensor.values();
    if (n == 0) return {0, 0};
    const std::size_t codes = kernels::packed_bytes(n, bits_);
    return {kCountBytes + sizeof(float) + codes, kCountBytes + sizeof(float) * max_centroids(n) + codes};
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext&, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const auto values = values_of(dense);
    if (values.empty()) return {};
    const auto range = kernels::order_statistics(values, kernels::KeyOf::kValue, {}, *options_.kernels, options_.pool).range;
    if (!kernels::all_finite(range)) return unencodable(values, spec(), std::numeric_limits<float>::max());
    const std::vector<float> centroids = fit(values, range);

    append(out, static_cast<std::uint32_t>(centroids.size()));
    const MutableBytes table = grow(out, centroids.size() * sizeof(float));
    std::memcpy(table.data(), centroids.data(), table.size());
    const std::vector<float> thresholds = thresholds_of(centroids);
    Unwritten room(out, kernels::packed_bytes(values.size(), bits_));
    const MutableBytes codes = room.span();
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      const MutableBytes part = codes.subspan(begin * bits_ / 8, kernels::packed_bytes(end - begin, bits_));
      options_.kernels->encode_search(values.subspan(begin, end - begin), thresholds, bits_, part);
    });
    room.written();
    return {};
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const auto values = mutable_values_of(x);
    const auto bounds = payload_bounds(spec_of(x));
    if (in.size() < bounds.min || in.size() > bounds.max) return wrong_length(spec(), bounds, in.size());
    if (values.empty()) return {};
    ByteReader reader(in);
    const std::size_t count = reader.take<std::uint32_t>().value_or(0);
    if (count == 0 || count > max_centroids(values.size())) {
      return Error{ErrorCode::kBadPayload, fmt::format("expected 1 to {} centroids, got {}", max_centroids(values.size()), count)};
    }
    const auto table_bytes = reader.take_bytes(count * sizeof(float));
    if (!table_bytes || reader.rest().size() != kernels::packed_bytes(values.size(), bits_)) {
      return Error{ErrorCode::kBadPayload, fmt::format("{} centroids do not fit a payload of {} bytes", count, in.size())};
    }
    std::vector<float> table(count);
    if (!options_.kernels->load_fp32(*table_bytes, table)) return Error{ErrorCode::kNonFinite, "a centroid is NaN or Inf"};
    const ByteView codes = reader.rest();
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      options_.kernels->decode_table(codes.subspan(begin * bits_ / 8), table, bits_, values.subspan(begin, end - begin));
    });
    return {};
  }

  State state() const override { return {}; }
  void set_state(const State&) override {}
  std::unique_ptr<DeviceCodec> device_codec() const override {
    return make_kmeans_device_codec(
        bits_, {kMaxSample, [this](std::vector<kernels::Key> sample, std::size_t n) { return fit_sample(std::move(sample), n); },
                [this](const std::vector<float>& centroids) { return thresholds_of(centroids); }});
  }

 private:
  static constexpr std::size_t kCountBytes = sizeof(std::uint32_t);

  std::size_t max_centroids(std::size_t n) const { return std::min(std::size_t{1} << bits_, n); }

  // Fits to every value of a small tensor, to an even sample and both extremes of a large one.
  std::vector<float> fit(std::span<const float> x, kernels::KeyRange range) const {
    const std::size_t m = std::min(x.size(), kMaxSample);
    auto keys = kernels::sample_keys(x, kernels::KeyOf::kValue, m, options_.pool);
    if (m < x.size()) keys.insert(keys.end(), {range.min, range.max});
    return fit_sample(std::move(keys), x.size());
  }

  std::vector<float> fit_sample(std::vector<kernels::Key> keys, std::size_t values) const {
    const SortedSample sample(std::move(keys));
    std::vector<float> centroids = initial_centroids(sample, max_centroids(values));
    refine(sample, centroids);
    return centroids;
  }

  std::vector<float> thresholds_of(const std::vector<float>& centroids) const {
    std::vector<float> thresholds(std::size_t{1} << bits_, std::numeric_limits<float>::infinity());
    for (std::size_t c = 1; c < centroids.size(); ++c) thresholds[c] = midpoint(centroids[c - 1], centroids[c]);
    return thresholds;
  }

  unsigned bits_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_kmeans(unsigned bits, const CodecOptions& options) { return std::make_unique<KMeans>(bits, options); }

}  // namespace epipe::codec
