#include <cmath>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/device_transforms.h"
#include "epipe/codec/cuda/entropy_passes.h"
#include "epipe/codec/kernels/cuda/plain.h"
#include "epipe/codec/kernels/cuda/rans.h"
#include "epipe/codec/kernels/cuda/transform.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/klt_control.h"
#include "epipe/codec/reflection_control.h"
#include "epipe/codec/span.h"
#include "epipe/codec/spectra.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;

constexpr std::size_t kMostFront = std::size_t{1} << 17U;  // bytes: head, tables and chunk sizes of nearly every payload

class EntropyDeviceCodec final : public DeviceCodec {
 public:
  EntropyDeviceCodec(EntropyKind kind, EntropyTarget target)
      : kind_(kind), control_(kind, target, {}), klt_(kind), reflection_(kind, {}) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext& at) override {
    if (!control_.set_rate(at.rate)) return std::nullopt;
    const std::size_t means = control_.means_bytes(spec_of(x));
    DevicePasses passes(x, means != 0 ? DevicePasses::Maps::kSum : DevicePasses::Maps::kLeave);
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
      if (means != 0) write_means(means_of(spec_of(x), passes.map_sums()), front);
      const Features features = features_of(x);
      if (const auto by_axes = choose_reflections(passes, features, at.frozen)) {
        if (features.are_spectra) write_spectra_head(front);
        append_bytes(front, by_axes->front);
        DevicePasses along_axes(reflected(by_axes, features.rows));
        payload = write(features.rows, along_axes, kernels::key_value(along_axes.largest()), 0, features.aside_for(*by_axes), at);
      } else if (const auto plan = choose_plan(x, passes, at.frozen)) {
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
      case PayloadKind::kReflections:
      case PayloadKind::kWithMeans: return decode_coded(x, in, first);
      case PayloadKind::kSpectra: return decode_spectra(x, in, first);
      default: return false;
    }
  }

  State state() const override {
    State all = control_.state();
    klt_.add_state(all);
    reflection_.add_state(all);
    return all;
  }
  void set_state(const State& state) override {
    control_.set_state(state);
    klt_.set_state(state);
    reflection_.set_state(state);
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

  // As in the codec on the host (entropy.cpp).
  struct Features {
    torch::Tensor rows;
    bool are_spectra = false;

    Aside aside_for(const ReflectionPlan& plan) const { return are_spectra ? plan.aside_of_spectra() : plan.aside; }
  };
  Features features_of(const torch::Tensor& x) const {
    if (kind_ == EntropyKind::kEc || !has_spectra(spec_of(x))) return {x};
    return {to_spectra_on_device(x), true};
  }

  std::shared_ptr<const ReflectionPlan> choose_reflections(DevicePasses& passes, const Features& features, bool frozen) {
    const TensorSpec tensor = spec_of(features.rows);
    if (!reflection_.considers(tensor)) return nullptr;
    torch::Tensor sample;
    const auto rows = [&]() -> std::span<const float> {
      if (!sample.defined()) sample = sampled_rows_of(features.rows);
      return values_of(sample);
    };
    const auto cost = [&](const TensorSpec& of, DevicePasses& own, const Aside& aside) {
      return control_.cost(of, kernels::key_value(own.largest()), own, aside);
    };
    const auto by_axes = [&](const std::shared_ptr<const ReflectionPlan>& plan) {
      DevicePasses along_axes(reflected(plan, features.rows));
      return cost(tensor, along_axes, features.aside_for(*plan));
    };
    return reflection_.choose(tensor, control_, {rows, [&] { return cost(passes.spec(), passes, {}); }, by_axes}, frozen);
  }

  torch::Tensor reflected(const std::shared_ptr<const ReflectionPlan>& plan, const torch::Tensor& x) {
    auto y = torch::empty_like(x);
    encoders_reflections_.apply(x, {plan, &plan->reflections}, false, y);
    return y;
  }

  static torch::Tensor transformed(const torch::Tensor& x, std::span<const float> matrix) {
    auto y = torch::empty_like(x);
    multiply_channels_on_device(x, matrix, y);
    return y;
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
  bool decode_coded(torch::Tensor& x, const DevicePayload& in, ByteView first) const {
    const auto fronts = read_fronts(spec_of(x), first, kernels::best(), reflection_reader_);
    if (!fronts) return false;
    const auto& [means, basis, reflections, size] = fronts.value();
    const DevicePayload coded = rest_of(in, size);
    auto front = read_front(spec_of(x), first.subspan(size), coded.size);
    if (!front && first.size() < in.size) front = read_front(spec_of(x), first_bytes(x, coded, coded.size), coded.size);
    if (!front) return false;
    const DeviceArray<std::uint32_t> unsound(x, 1);
    clear(unsound.data(), 4, stream_of(x));
    decode_chunks(x, coded, front.value(), unsound.data());
    if (reflections) decoders_reflections_.apply(x, reflections, true, x);
    if (basis) multiply_channels_on_device(x, basis->to_channels(), x);
    if (!means.empty()) set_channel_means_on_device(x, means);
    return sound(unsound.data(), in, stream_of(x));  // the only wait, where the host has the payload
  }

  bool decode_spectra(torch::Tensor& x, const DevicePayload& in, ByteView first) const {
    if (!check_spectra_head(spec_of(x), first)) return false;
    const ByteView rows = first.subspan(kSpectraHead);
    if (rows.empty() || load<PayloadKind>(rows, 0) != PayloadKind::kReflections) return false;
    const TensorSpec tensor = spectra_of(spec_of(x));
    auto spectra = torch::empty(std::vector<std::int64_t>(tensor.dims.begin(), tensor.dims.end()), x.options());
    DevicePayload behind_head = rest_of(in, kSpectraHead);
    behind_head.is_own = in.is_own;
    if (!decode_coded(spectra, behind_head, rows)) return false;
    from_spectra_on_device(spectra, x);
    return true;
  }

  // What follows some bytes: where it is, or a copy that is aligned as kernels need it.
  static DevicePayload rest_of(const DevicePayload& in, std::size_t bytes) {
    constexpr std::size_t kAlign = 16;
    if (bytes % kAlign != 0) return part_of(in, bytes, in.size - bytes);
    return {in.bytes.slice(0, static_cast<std::int64_t>(bytes)), in.size - bytes};
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
    if (planes.mean_units() > 0) {
      cuda::scale_by_exponent(x.data_ptr<float>(), planes.mean_units(), -head.form.mean_shift, x.data_ptr<float>(), stream);
    }
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
    SentArrays sent(x);
    const auto device_chunks = sent.add<cuda::CodedChunk>(chunks);
    const auto device_tokens = sent.add<std::uint8_t>(index.token_of);
    const auto device_entries = sent.add<cuda::TokenEntry>(index.entries);
    const auto device_table_of = sent.add<std::uint8_t>(tables.table_of);
    const auto device_shifts = sent.add<std::int8_t>(flat_shifts(tables));
    sent.send();
    const auto slots = slots_of_planes(x, planes);
    const DeviceArray<std::uint8_t> magnitudes(x, planes.symbols());
    const bool running = layout.context == cuda::Context::kRunning;
    const DeviceArray<std::uint16_t> means(x, running ? layout.chunks * layout.row : 0);
    cuda::decode_chunks(bytes_of(in), sent[device_chunks], layout, {slots.data(), sent[device_table_of], front.head.lanes},
                        {sent[device_tokens], sent[device_entries], static_cast<unsigned>(tables.tables.size())},
                        {sent[device_shifts], front.head.step}, magnitudes.data(), running ? means.data() : nullptr, y.data_ptr<float>(),
                        unsound, stream_of(x));
  }

  EntropyKind kind_;
  RateControl control_;
  KltControl klt_;
  ReflectionControl reflection_;
  DeviceReflections encoders_reflections_;
  mutable ReflectionReader reflection_reader_;
  mutable DeviceReflections decoders_reflections_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_entropy_device_codec(EntropyKind kind, EntropyTarget target) {
  return std::make_unique<EntropyDeviceCodec>(kind, target);
}

}  // namespace epipe::codec
