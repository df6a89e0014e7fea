// topk: the largest magnitudes and where they are. Zeros are never sent, so a sparse tensor costs what it holds.
//
//   payload:  u8 form | u64 count | positions | the kept values, in order of position, by the inner codec as [count]
//   form 0:   positions of bit_width(n - 1) bits, at least 1, ascending, packed
//   form 1:   a bitmap of n bits
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

using kernels::Key;

enum class TopkForm : std::uint8_t { kPositions = 0, kBitmap = 1 };

constexpr std::size_t kHeadBytes = 1 + 8;

unsigned position_bits(std::size_t n) { return std::max(1U, static_cast<unsigned>(std::bit_width(n - 1))); }

std::size_t positions_bytes(TopkForm form, std::size_t n, std::size_t count) {
  return form == TopkForm::kBitmap ? (n + 7) / 8 : kernels::packed_bytes(count, position_bits(n));
}

TopkForm smaller_form(std::size_t n, std::size_t count) {
  return positions_bytes(TopkForm::kBitmap, n, count) < positions_bytes(TopkForm::kPositions, n, count) ? TopkForm::kBitmap
                                                                                                        : TopkForm::kPositions;
}

struct Kept {
  std::vector<std::size_t> positions;
  std::vector<float> values;
};

// Values above the threshold, and of those equal to it the first `ties`.
Kept keep(std::span<const float> x, Key threshold, std::size_t ties) {
  Kept kept;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Key key = kernels::magnitude_key(x[i]);
    if (key < threshold || key == 0) continue;
    if (key == threshold) {
      if (ties == 0) continue;
      --ties;
    }
    kept.positions.push_back(i);
    kept.values.push_back(x[i]);
  }
  return kept;
}

void write_positions(TopkForm form, std::span<const std::size_t> positions, std::size_t n, MutableBytes out) {
  if (form == TopkForm::kBitmap) {
    std::fill(out.begin(), out.end(), std::byte{0});
    for (const std::size_t p : positions) out[p / 8] |= std::byte{1} << (p % 8);
    return;
  }
  kernels::BitWriter writer(out);
  for (const std::size_t p : positions) writer.put(p, position_bits(n));
  writer.finish();
}

// nullopt unless exactly `count` positions below n come out, in ascending order.
std::optional<std::vector<std::size_t>> read_positions(TopkForm form, std::size_t count, std::size_t n, ByteView in) {
  std::vector<std::size_t> positions;
  positions.reserve(count);
  if (form == TopkForm::kBitmap) {
    for (std::size_t byte = 0; byte < in.size(); ++byte) {
      for (auto bits = static_cast<unsigned>(in[byte]); bits != 0; bits &= bits - 1) {
        if (positions.size() == count) return std::nullopt;
        positions.push_back(8 * byte + static_cast<std::size_t>(std::countr_zero(bits)));
      }
    }
  } else {
    kernels::BitReader reader(in);
    for (std::size_t i = 0; i < count; ++i) positions.push_back(reader.take(position_bits(n)));
  }
  const bool ascending = std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) == positions.end();
  if (positions.size() != count || !ascending || (count > 0 && positions.back() >= n)) return std::nullopt;
  return positions;
}

class TopK final : public Codec {
 public:
  TopK(double ratio, std::unique_ptr<Codec> inner, const CodecOptions& options)
      : ratio_(ratio), inner_(std::move(inner)), options_(options) {}

  std::string spec() const override {
    const std::string inner = inner_->spec();
    return inner == "none" ? fmt::format("topk:{}", ratio_) : fmt::format("topk:{}>{}", ratio_, inner);
  }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    const std::size_t n = tensor.values();
    if (n == 0) return {0, 0};
    const std::size_t most = kept_count(n);
    return {kHeadBytes, kHeadBytes + positions_bytes(TopkForm::kBitmap, n, most) + inner_->payload_bounds({{most}}).max};
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const auto values = values_of(dense);
    if (values.empty()) return {};
    const std::size_t n = values.size();
    const std::size_t count = kept_count(n);
    const std::size_t rank = n - count;
    const auto order = kernels::order_statistics(values, kernels::KeyOf::kMagnitude, {&rank, 1}, *options_.kernels, options_.pool);
    if (!kernels::all_finite(order.range)) return unencodable(values, spec(), std::numeric_limits<float>::max());
    const Key threshold = order.keys[0];
    const auto above = static_cast<std::size_t>(
        std::count_if(values.begin(), values.end(), [threshold](float v) { return kernels::magnitude_key(v) > threshold; }));
    Kept kept = keep(values, threshold, count - above);

    const std::size_t start = out.size();
    const TopkForm form = smaller_form(n, kept.positions.size());
    append(out, form);
    append(out, static_cast<std::uint64_t>(kept.positions.size()));
    write_positions(form, kept.positions, n, grow(out, positions_bytes(form, n, kept.positions.size())));
    const auto sent = torch::from_blob(kept.values.data(), {static_cast<std::int64_t>(kept.values.size())});
    auto result = inner_->encode(sent, at, out);
    if (!result) out.resize(start);
    return result;
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const auto values = mutable_values_of(x);
    const auto bounds = payload_bounds(spec_of(x));
    if (in.size() < bounds.min || in.size() > bounds.max) return wrong_length(spec(), bounds, in.size());
    if (values.empty()) return {};
    const std::size_t n = values.size();
    ByteReader reader(in);
    const auto form = reader.take<std::uint8_t>().value_or(0);
    const std::uint64_t count = reader.take<std::uint64_t>().value_or(0);
    if (form > 1 || count > kept_count(n)) {
      return Error{ErrorCode::kBadPayload,
                   fmt::format("expected form 0 or 1 and at most {} values, got form {} and {}", kept_count(n), form, count)};
    }
    const auto position_view = reader.take_bytes(positions_bytes(static_cast<TopkForm>(form), n, count));
    if (!position_view) return Error{ErrorCode::kBadPayload, fmt::format("positions of {} values do not fit the payload", count)};
    const auto positions = read_positions(static_cast<TopkForm>(form), count, n, *position_view);
    if (!positions) return Error{ErrorCode::kBadPayload, fmt::format("expected {} ascending positions below {}", count, n)};

    const TensorSpec kept_spec{{count}};
    const auto inner_bounds = inner_->payload_bounds(kept_spec);
    if (reader.rest().size() < inner_bounds.min || reader.rest().size() > inner_bounds.max) {
      return wrong_length(inner_->spec(), inner_bounds, reader.rest().size());
    }
    auto kept = torch::empty({static_cast<std::int64_t>(count)});
    EPIPE_TRY(inner_->decode_into(kept, reader.rest()));
    std::fill(values.begin(), values.end(), 0.0F);
    const auto kept_values = values_of(kept);
    for (std::size_t i = 0; i < count; ++i) values[(*positions)[i]] = kept_values[i];
    return {};
  }

  State state() const override { return inner_->state(); }
  void set_state(const State& state) override { inner_->set_state(state); }
  std::unique_ptr<DeviceCodec> device_codec() const override {
    return make_topk_device_codec({[this](std::size_t n) { return kept_count(n); }, position_bits,
                                   [](bool bitmap, std::size_t n, std::size_t count) {
                                     return positions_bytes(bitmap ? TopkForm::kBitmap : TopkForm::kPositions, n, count);
                                   },
                                   [this](std::size_t count) { return inner_->payload_bounds({{count}}); }},
                                  inner_->device_codec());
  }

 private:
  std::size_t kept_count(std::size_t n) const {
    return std::clamp<std::size_t>(static_cast<std::size_t>(std::llround(ratio_ * static_cast<double>(n))), 1, n);
  }

  double ratio_;
  std::unique_ptr<Codec> inner_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_topk(double ratio, const InnerFactory& inner, const CodecOptions& options) {
  return std::make_unique<TopK>(ratio, inner(), options);
}

}  // namespace epipe::codec
