#include <cmath>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/entropy_passes.h"
#include "epipe/codec/kernels/cuda/klt.h"
#include "epipe/codec/kernels/cuda/means.h"
#include "epipe/codec/kernels/cuda/plain.h"
#include "epipe/codec/kernels/cuda/rans.h"
#include "epipe/codec/kernels/cuda/transform.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/klt_control.h"
#include "epipe/codec/spectra.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;

constexpr std::size_t kMostFront = std::size_t{1} << 17U;  // bytes: head, tables and chunk sizes of nearly every payload

class EntropyDeviceCodec final : public DeviceCodec {
 public:
  EntropyDeviceCodec(EntropyKind kind, EntropyTarget target) : kind_(kind), control_(kind, target, {}), klt_(kind) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext& at) override {
    const bool reflects = Reflections::fits(spec_of(x)) || has_spectra(spec_of(x));
    if (kind_ != EntropyKind::kEc && reflects) return std::nullopt;  // the host knows reflections
    if (!control_.set_rate(at.rate)) return std::nullopt;
    DevicePasses passes(x);
    if (passes.largest() >= kernels::kInfinityKey) return std::nullopt;
    const float largest = kernels::key_value(passes.largest());
    if (largest == 0) return of_kind(x, PayloadKind::kZeros, {});
    const int exponent = RateControl::scaling_exponent(largest);
    std::optional<DevicePayload> payload;
    if (exponent != 0) {
      DevicePasses scaled_passes(scaled(x, -exponent));
      payload = write(x, scaled_passes, std::ldexp(largest, -exponent), exponent, {}, at);
    } else {
      Bytes front;
      if (control_.means_bytes(spec_of(x)) != 0) write_means(means_of(spec_of(x), map_sums(x)), front);
      const std::size_t means = front.size();
      if (const auto plan = choose_plan(x, passes, at.frozen)) {
        write_basis(plan->basis, front);
        DevicePasses in_basis(transformed(x, plan->from_channels));
        payload = write(x, in_basis, kernels::key_value(in_basis.largest()), 0, {plan->aside.bytes + means, plan->aside.skew}, at);
      } else {
        payload = write(x, passes, largest, 0, {means}, at);
      }
      if (payload) payload = behind(front, x, *payload);
    }
    return payload && payload->size <= entropy_bounds(spec_of(x)).max ? payload : of_kind(x, PayloadKind::kPlain, x);
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView host) const override {
    Bytes fetched;
    if (host.empty()) fetched = first_bytes(x, in, fronts_room(spec_of(x)) + kMostFront);
    const ByteView first = host.empty() ? ByteView(fetched) : host;  // all of the payload, or as much of it as the host reads
    if (first.empty()) return false;
    switch (static_cast<PayloadKind>(first.front())) {
      case PayloadKind::kPlain: return decode_plain(x, in);
      case PayloadKind::kZeros: return in.size == 1 && decode_zeros(x);
      case PayloadKind::kCoded:
      case PayloadKind::kKlt:
      case PayloadKind::kWithMeans: return decode_coded(x, in, first);
      default: return false;
    }
  }

  State state() const override {
    State all = control_.state();
    klt_.add_state(all);
    return all;
  }
  void set_state(const State& state) override {
    control_.set_state(state);
    klt_.set_state(state);
  }

 private:
  static std::byte* bytes_of(const DevicePayload& payload) { return reinterpret_cast<std::byte*>(payload.bytes.data_ptr<std::uint8_t>()); }

  // None where no coded payload errs as little as was asked for.
  std::optional<DevicePayload> write(const torch::Tensor& x, DevicePasses& passes, float largest, int exponent, const Aside& aside,
                                     const EncodeContext& at) {
    const Decision decision = control_.decide(spec_of(x), largest, exponent, passes, aside, at.frozen);
    if (!decision.keeps_bound) return std::nullopt;
    return passes.write(decision);
  }

  std::shared_ptr<const ChannelPlan> choose_plan(const torch::Tensor& x, DevicePasses& passes, bool frozen) {
    const auto cost = [&](DevicePasses& own, const Aside& aside) {
      return control_.cost(spec_of(x), kernels::key_value(own.largest()), own, aside);
    };
    const auto klt_cost = [&](const ChannelPlan& plan) {
      DevicePasses in_basis(transformed(x, plan.from_channels));
      return cost(in_basis, plan.aside);
    };
    return klt_.choose(x, control_, {[&] { return cost(passes, {}); }, klt_cost}, frozen);
  }

  static torch::Tensor transformed(const torch::Tensor& x, std::span<const float> matrix) {
    auto y = torch::empty_like(x);
    multiply_channels(x, matrix, y);
    return y;
  }
  static void multiply_channels(const torch::Tensor& x, std::span<const float> matrix, torch::Tensor& y) {
    static_assert(ChannelBasis::kMostChannels == cuda::kMostChannels);
    const auto there = sent_array<float>(x, matrix);
    cuda::multiply_channels(x.data_ptr<float>(), static_cast<std::uint64_t>(x.size(0)), static_cast<unsigned>(x.size(1)),
                            static_cast<std::uint64_t>(x.size(2) * x.size(3)), there.data(), y.data_ptr<float>(), stream_of(x));
  }

  static cuda::Maps maps_of(const torch::Tensor& x) {
    return {static_cast<std::uint64_t>(x.size(0)), static_cast<std::uint64_t>(x.size(1)),
            static_cast<std::uint64_t>(x.size(2) * x.size(3))};
  }
  static std::vector<double> map_sums(const torch::Tensor& x) {
    const DeviceArray<double> sums(x, maps_of(x).count());
    cuda::sum_maps(x.data_ptr<float>(), maps_of(x), sums.data(), stream_of(x));
    return fetch_array(sums.data(), sums.size(), stream_of(x));
  }
  static void set_means(torch::Tensor& x, std::span<const float> means) {
    const cuda::Maps maps = maps_of(x);
    const auto shifts = sent_array<float>(x, means);
    const DeviceArray<double> sums(x, maps.count());
    cuda::sum_maps(x.data_ptr<float>(), maps, sums.data(), stream_of(x));
    cuda::means_to_shifts(sums.data(), maps, shifts.data(), stream_of(x));
    cuda::add_to_channels(x.data_ptr<float>(), maps, shifts.data(), stream_of(x));
  }

  static DevicePayload behind(ByteView front, const torch::Tensor& x, const DevicePayload& coded) {
    if (front.empty()) return coded;
    DevicePayload payload = new_payload(x, front.size() + coded.size);
    send(bytes_of(payload), front.data(), front.size(), stream_of(x));
    copy(bytes_of(payload) + front.size(), bytes_of(coded), coded.size, stream_of(x));
    append_bytes(payload.front, front);
    append_bytes(payload.front, coded.front);
    return payload;
  }

  static Bytes first_bytes(const torch::Tensor& x, const DevicePayload& in, std::size_t most) {
    Bytes first;
    const std::size_t size = std::min(in.size, most);
    fetch(grow(first, size).data(), bytes_of(in), size, stream_of(x));
    return first;
  }

  // `first` is all of the payload, or as much of it as usually does.
  static bool decode_coded(torch::Tensor& x, const DevicePayload& in, ByteView first) {
    const auto fronts = read_fronts(spec_of(x), first, kernels::best());
    if (!fronts || fronts.value().reflections) return false;  // the host knows reflections
    const auto& [means, basis, reflections, size] = fronts.value();
    const DevicePayload coded{in.bytes.slice(0, static_cast<std::int64_t>(size)), in.size - size};
    auto front = read_front(spec_of(x), first.subspan(size), coded.size);
    if (!front && first.size() < in.size) front = read_front(spec_of(x), first_bytes(x, coded, coded.size), coded.size);
    if (!front || (front.value().head.form.edge == 0 && front.value().head.form.transform)) return false;  // the host knows spectra
    const DeviceArray<std::uint32_t> unsound(x, 1);
    clear(unsound.data(), 4, stream_of(x));
    decode_chunks(x, coded, front.value(), unsound.data());
    if (basis) multiply_channels(x, basis->to_channels(), x);
    if (!means.empty()) set_means(x, means);
    return sound(unsound.data(), in, stream_of(x));  // the only wait, where the host has the payload
  }

  static torch::Tensor scaled(const torch::Tensor& x, int exponent) {
    auto y = torch::empty_like(x);
    cuda::scale_by_exponent(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()), exponent, y.data_ptr<float>(), stream_of(x));
    return y;
  }

  static DevicePayload of_kind(const torch::Tensor& x, PayloadKind kind, const torch::Tensor& values) {
    DevicePayload payload = new_payload(x, 1 + (values.defined() ? values.nbytes() : 0));
    append(payload.front, kind);
    send(bytes_of(payload), payload.front.data(), 1, stream_of(x));
    if (values.defined()) copy(bytes_of(payload) + 1, values.data_ptr(), values.nbytes(), stream_of(x));
    return payload;
  }

  static bool decode_zeros(torch::Tensor& x) {
    clear(x.data_ptr(), x.nbytes(), stream_of(x));
    return true;
  }

  static bool decode_plain(torch::Tensor& x, const DevicePayload& in) {
    if (in.size != 1 + x.nbytes()) return false;
    const DeviceArray<float> values(x, static_cast<std::size_t>(x.numel()));
    const DeviceArray<std::uint32_t> unfit(x, 1);
    clear(unfit.data(), 4, stream_of(x));
    copy(values.data(), bytes_of(in) + 1, x.nbytes(), stream_of(x));
    cuda::load_plain(values.data(), static_cast<std::size_t>(x.numel()), cuda::Format::kFp32, x.data_ptr<float>(), unfit.data(),
                     stream_of(x));
    return sound(unfit.data(), in, stream_of(x));
  }

  static void decode_chunks(torch::Tensor& x, const DevicePayload& in, const CodedFront& front, std::uint32_t* unsound) {
    const CodedHead& head = front.head;
    const Planes planes(spec_of(x), head.form, head.chunk_log2);
    const cuda::Layout layout = layout_of(planes);
    const Stream stream = stream_of(x);
    torch::Tensor y = layout.blocks ? torch::empty({static_cast<std::int64_t>(planes.symbols())}, x.options()) : x;
    decode_symbols(x, in, front, planes, layout, y, unsound);
    if (layout.blocks) {
      cuda::store_planes(y.data_ptr<float>(), layout, kernels::inverse_dct(planes.height()), kernels::inverse_dct(planes.width()),
                         x.data_ptr<float>(), stream);
    }
    if (head.exponent != 0) {
      cuda::scale_by_exponent(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()), head.exponent, x.data_ptr<float>(), stream);
    }
  }

  // What a TokenIndex points to, on the host.
  struct Index {
    std::vector<std::uint8_t> token_of;
    std::vector<cuda::TokenEntry> entries;
  };
  static Index index_of(const TokenTables& tables, float step) {
    Index index;
    index.token_of.resize(tables.tables.size() * kernels::kProbabilityScale);
    index.entries.resize(tables.tables.size() * kernels::kTokenRoom);
    const std::vector<float> values = token_values(tables, step);
    for (std::size_t table = 0; table < tables.tables.size(); ++table) {
      std::uint32_t start = 0;
      for (std::size_t token = 0; token < kernels::kTokens; ++token) {
        const std::uint32_t frequency = tables.tables[table][token];
        const std::size_t at = table * kernels::kTokenRoom + token;
        index.entries[at] = {frequency << 16U | start, values[at]};
        std::fill_n(index.token_of.begin() + static_cast<std::ptrdiff_t>(table * kernels::kProbabilityScale + start), frequency,
                    static_cast<std::uint8_t>(token));
        start += frequency;
      }
    }
    return index;
  }

  static void decode_symbols(const torch::Tensor& x, const DevicePayload& in, const CodedFront& front, const Planes& planes,
                             const cuda::Layout& layout, torch::Tensor& y, std::uint32_t* unsound) {
    const auto& tables = front.tables;
    std::vector<cuda::CodedChunk> chunks;
    for (const ChunkPlace& chunk : front.chunks) {
      chunks.push_back(
          {chunk.words, chunk.raw, static_cast<std::uint32_t>(chunk.sizes.words), static_cast<std::uint32_t>(chunk.sizes.raw)});
    }
    const Index index = index_of(tables, front.head.step);
    const auto device_chunks = sent_array<cuda::CodedChunk>(x, chunks);
    const auto device_tokens = sent_array<std::uint8_t>(x, index.token_of);
    const auto device_entries = sent_array<cuda::TokenEntry>(x, index.entries);
    const auto device_table_of = sent_array<std::uint8_t>(x, tables.table_of);
    const auto device_shifts = sent_array<std::int8_t>(x, flat_shifts(tables));
    const auto slots = slots_of_planes(x, planes);
    const DeviceArray<std::uint8_t> magnitudes(x, planes.symbols());
    const bool running = layout.context == cuda::Context::kRunning;
    const DeviceArray<std::uint16_t> means(x, running ? layout.chunks * layout.row : 0);
    cuda::decode_chunks(bytes_of(in), device_chunks.data(), layout, {slots.data(), device_table_of.data(), front.head.lanes},
                        {device_tokens.data(), device_entries.data(), static_cast<unsigned>(tables.tables.size())},
                        {device_shifts.data(), front.head.step}, magnitudes.data(), running ? means.data() : nullptr, y.data_ptr<float>(),
                        unsound, stream_of(x));
  }

  EntropyKind kind_;
  RateControl control_;
  KltControl klt_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_entropy_device_codec(EntropyKind kind, EntropyTarget target) {
  return std::make_unique<EntropyDeviceCodec>(kind, target);
}

}  // namespace epipe::codec
