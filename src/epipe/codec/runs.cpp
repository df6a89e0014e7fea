// uniform, sort, fast: 2^S runs of values, each cut into 2^Q - 1 equal steps. They differ only in where the runs begin.
//
//   payload:  min(2^S, n) x { f32 min, f32 step } | n codes of Q+S bits, packed
//
// A code is run << Q | level and stands for fma(level, step[run], min[run]).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/codec/kernels/sample.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

using kernels::Key;
using kernels::KeyOf;
using kernels::KeyRange;
using kernels::Run;
using kernels::RunTable;

constexpr std::size_t kFastSample = 1U << 14;  // pinned in docs/codec_design.md

// A run before its steps are known.
struct Interval {
  Key low;
  Key high;
};

// Equal parts of the sorted order; the first n mod k get one value more. With fewer values than runs, one value each.
std::vector<std::size_t> run_starts(std::size_t n, std::size_t runs) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i <= runs; ++i) starts.push_back(i * (n / runs) + std::min(i, n % runs));
  return starts;
}

class RunCodec final : public Codec {
 public:
  RunCodec(RunBorders borders, unsigned level_bits, unsigned split_bits, const CodecOptions& options)
      : borders_(borders), level_bits_(level_bits), split_bits_(split_bits), options_(options) {}

  std::string spec() const override {
    if (borders_ == RunBorders::kUniform) return fmt::format("uniform:{}", level_bits_);
    return fmt::format("{}:{}+{}", borders_ == RunBorders::kSort ? "sort" : "fast", level_bits_, split_bits_);
  }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    const std::size_t bytes = side_bytes(tensor.values()) + kernels::packed_bytes(tensor.values(), level_bits_ + split_bits_);
    return {bytes, bytes};
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext&, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const auto values = values_of(dense);
    if (values.empty()) return {};
    auto fitted = fit(values);
    if (!fitted) return fitted.error();
    const std::vector<Run>& runs = fitted.value();
    Unwritten room(out, payload_bounds(spec_of(dense)).max);
    const MutableBytes payload = room.span();
    std::memcpy(payload.data(), runs.data(), side_bytes(values.size()));
    const MutableBytes codes = payload.subspan(side_bytes(values.size()));
    const RunTable table(runs, level_bits_);
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      options_.kernels->encode_runs(values.subspan(begin, end - begin), table, part_of(codes, begin, end));
    });
    room.written();
    return {};
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const auto values = mutable_values_of(x);
    const auto bounds = payload_bounds(spec_of(x));
    if (in.size() != bounds.max) return wrong_length(spec(), bounds, in.size());
    if (values.empty()) return {};
    auto runs = read_runs(in, values.size());
    if (!runs) return runs.error();
    const ByteView codes = in.subspan(side_bytes(values.size()));
    const RunTable table(runs.value(), level_bits_);
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      options_.kernels->decode_runs(part_of(codes, begin, end), table, values.subspan(begin, end - begin));
    });
    return {};
  }

  State state() const override { return {}; }
  void set_state(const State&) override {}
  std::unique_ptr<DeviceCodec> device_codec() const override { return make_run_device_codec(borders_, level_bits_, split_bits_); }

 private:
  std::size_t run_count() const { return std::size_t{1} << split_bits_; }
  std::size_t sent_runs(std::size_t n) const { return std::min(run_count(), n); }
  std::size_t side_bytes(std::size_t n) const { return sent_runs(n) * sizeof(Run); }
  float levels() const { return static_cast<float>((1U << level_bits_) - 1); }

  // The bytes of codes [begin, end); begin is a multiple of 8.
  template <typename View>
  View part_of(View codes, std::size_t begin, std::size_t end) const {
    const unsigned bits = level_bits_ + split_bits_;
    return codes.subspan(begin * bits / 8, kernels::packed_bytes(end - begin, bits));
  }

  Result<std::vector<Run>> fit(std::span<const float> x) const {
    const std::vector<Interval> intervals = borders_ == RunBorders::kFast ? sampled_intervals(x) : exact_intervals(x);
    if (intervals.empty()) return unencodable(x, spec(), std::numeric_limits<float>::max());
    std::vector<Run> runs;
    for (const Interval& interval : intervals) {
      const float low = kernels::key_value(interval.low);
      const float spread = kernels::key_value(interval.high) - low;
      if (!std::isfinite(spread)) {
        return Error{ErrorCode::kOutOfRange, fmt::format("the values from {} to {} span more than float32 holds; use none or bf16", low,
                                                         kernels::key_value(interval.high))};
      }
      float step = spread / levels();
      // Rounded up next to the largest float, the top level would overflow.
      while (!std::isfinite(std::fma(levels(), step, low))) step = std::nextafter(step, 0.0F);
      runs.push_back({low, step});
    }
    complete(runs, kernels::key_value(intervals.back().high));
    return runs;
  }

  // Runs beyond those sent are never used by an encoder; they decode to the last known value.
  void complete(std::vector<Run>& runs, float last) const { runs.resize(run_count(), Run{last, 0.0F}); }

  // The true order statistics at the ends of every run (uniform: one run). Empty when a value is not finite.
  std::vector<Interval> exact_intervals(std::span<const float> x) const {
    const auto starts = run_starts(x.size(), sent_runs(x.size()));
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      ranks.push_back(starts[i]);
      ranks.push_back(starts[i + 1] - 1);
    }
    const auto order = kernels::order_statistics(x, KeyOf::kValue, ranks, *options_.kernels, options_.pool);
    if (!kernels::all_finite(order.range)) return {};
    std::vector<Interval> intervals;
    for (std::size_t i = 0; i < order.keys.size(); i += 2) intervals.push_back({order.keys[i], order.keys[i + 1]});
    return intervals;
  }

  // Inner borders from a sample of the whole tensor; a run ends where the next begins. Empty when a value is not finite.
  std::vector<Interval> sampled_intervals(std::span<const float> x) const {
    const KeyRange range = kernels::order_statistics(x, KeyOf::kValue, {}, *options_.kernels, options_.pool).range;
    if (!kernels::all_finite(range)) return {};
    const std::size_t m = std::min(x.size(), kFastSample);
    auto sample = kernels::sample_keys(x, KeyOf::kValue, m, options_.pool);
    kernels::sort_keys(sample);
    const std::size_t runs = sent_runs(x.size());
    std::vector<Interval> intervals;
    for (std::size_t i = 0; i < runs; ++i) {
      const Key low = i == 0 ? range.min : sample[i * m / runs];
      const Key high = i + 1 == runs ? range.max : sample[(i + 1) * m / runs];
      intervals.push_back({low, high});
    }
    return intervals;
  }

  Result<std::vector<Run>> read_runs(ByteView in, std::size_t n) const {
    std::vector<Run> runs(sent_runs(n));
    std::memcpy(runs.data(), in.data(), side_bytes(n));
    for (const Run& run : runs) {
      if (!(run.step >= 0) || !std::isfinite(run.min) || !std::isfinite(std::fma(levels(), run.step, run.min))) {
        return Error{ErrorCode::kBadPayload, fmt::format("run with min {} and step {} does not give finite values", run.min, run.step)};
      }
    }
    complete(runs, runs.back().min);
    return runs;
  }

  RunBorders borders_;
  unsigned level_bits_;
  unsigned split_bits_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_uniform(unsigned bits, const CodecOptions& options) {
  return std::make_unique<RunCodec>(RunBorders::kUniform, bits, 0, options);
}
std::unique_ptr<Codec> make_sort(unsigned level_bits, unsigned split_bits, const CodecOptions& options) {
  return std::make_unique<RunCodec>(RunBorders::kSort, level_bits, split_bits, options);
}
std::unique_ptr<Codec> make_fast(unsigned level_bits, unsigned split_bits, const CodecOptions& options) {
  return std::make_unique<RunCodec>(RunBorders::kFast, level_bits, split_bits, options);
}

}  // namespace epipe::codec
