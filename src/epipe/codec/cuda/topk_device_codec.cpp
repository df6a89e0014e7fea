#include <limits>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/compact.h"
#include "epipe/codec/kernels/cuda/order.h"
#include "epipe/codec/kernels/key.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;
using kernels::Key;
using kernels::KeyOf;

constexpr std::size_t kDeviceHeadBytes = 1 + 8;
constexpr std::size_t kMostValues = std::numeric_limits<std::uint32_t>::max();

class TopKDeviceCodec final : public DeviceCodec {
 public:
  TopKDeviceCodec(TopKShape shape, std::unique_ptr<DeviceCodec> inner) : shape_(std::move(shape)), inner_(std::move(inner)) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext& at) override {
    const auto n = static_cast<std::size_t>(x.numel());
    if (n > kMostValues) return std::nullopt;
    const Kept kept = keep(x);
    if (!kept.finite) return std::nullopt;
    DevicePayload values;
    if (kept.count > 0) {
      auto encoded = settled(inner_->encode(kept.values, at));
      if (!encoded) return std::nullopt;
      values = *encoded;
    }
    return assemble(x, kept, values);
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView host) const override {
    const auto n = static_cast<std::size_t>(x.numel());
    if (n > kMostValues || in.size < kDeviceHeadBytes) return false;
    const Stream stream = stream_of(x);
    const auto* const bytes = in.bytes.data_ptr<std::uint8_t>();
    const auto head = fetch_array(bytes, kDeviceHeadBytes, stream);
    const std::uint8_t form = head[0];
    std::uint64_t count;
    std::memcpy(&count, head.data() + 1, sizeof(count));
    if (form > 1 || count > shape_.kept_count(n)) return false;
    const std::size_t position_bytes = shape_.position_bytes(form == 1, n, count);
    if (in.size - kDeviceHeadBytes < position_bytes) return false;
    const std::size_t values_at = kDeviceHeadBytes + position_bytes;
    const auto bounds = shape_.inner_bounds(count);
    if (in.size - values_at < bounds.min || in.size - values_at > bounds.max) return false;

    auto kept = torch::empty({static_cast<std::int64_t>(count)}, x.options());
    if (count > 0) {
      const DevicePayload values = part_of(in, values_at, in.size - values_at);
      if (!inner_->decode_into(kept, values, host.empty() ? host : host.subspan(values_at))) return false;
    }
    const DevicePayload positions = part_of(in, kDeviceHeadBytes, position_bytes);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(positions.bytes.data_ptr<std::uint8_t>());
    const DeviceArray<std::uint32_t> wrong(x, 1);
    clear(wrong.data(), 4, stream);
    if (form == 1) {
      const DeviceArray<std::uint32_t> counts(x, cuda::compact_tiles(n) + 1);
      cuda::scatter_bitmap(words, count, kept.data_ptr<float>(), n, x.data_ptr<float>(), counts.data(), wrong.data(), stream);
    } else {
      cuda::scatter_packed(words, count, shape_.position_bits(n), kept.data_ptr<float>(), n, x.data_ptr<float>(), wrong.data(), stream);
    }
    return fetch_one(wrong.data(), stream) == 0;
  }

  State state() const override { return inner_->state(); }
  void set_state(const State& state) override { inner_->set_state(state); }

 private:
  struct Kept {
    bool finite;
    std::size_t count;
    DeviceArray<std::uint32_t> positions;
    torch::Tensor values;
  };

  Kept keep(const torch::Tensor& x) const {
    const auto n = static_cast<std::size_t>(x.numel());
    const Stream stream = stream_of(x);
    const std::size_t most = shape_.kept_count(n);
    const std::vector<std::uint64_t> ranks = {n - most, n - 1};
    const DeviceArray<Key> keys(x, 2);
    const DeviceArray<std::byte> room(x, cuda::select_room(n, ranks.size()));
    cuda::select_keys(x.data_ptr<float>(), n, KeyOf::kMagnitude, ranks, keys.data(), nullptr, room.data(), stream);
    const std::size_t tiles = cuda::compact_tiles(n) + 1;
    const DeviceArray<std::uint32_t> counts(x, 3 * tiles);
    const cuda::TileCounts tile_counts{counts.data(), counts.data() + tiles, counts.data() + 2 * tiles};
    cuda::count_kept(x.data_ptr<float>(), n, keys.data(), static_cast<std::uint32_t>(most), tile_counts, stream);
    const Key largest = fetch_one(keys.data() + 1, stream);
    const std::size_t count = fetch_one(tile_counts.kept + tiles - 1, stream);
    Kept kept{largest < kernels::kInfinityKey, count, DeviceArray<std::uint32_t>(x, count),
              torch::empty({static_cast<std::int64_t>(count)}, x.options().requires_grad(false))};
    if (count > 0 && kept.finite) {
      cuda::write_kept(x.data_ptr<float>(), n, keys.data(), static_cast<std::uint32_t>(most), tile_counts, kept.positions.data(),
                       kept.values.data_ptr<float>(), stream);
    }
    return kept;
  }

  DevicePayload assemble(const torch::Tensor& x, const Kept& kept, const DevicePayload& values) const {
    const auto n = static_cast<std::size_t>(x.numel());
    const Stream stream = stream_of(x);
    const bool bitmap = shape_.position_bytes(true, n, kept.count) < shape_.position_bytes(false, n, kept.count);
    const std::size_t position_bytes = shape_.position_bytes(bitmap, n, kept.count);
    const DeviceArray<std::uint32_t> words(x, position_bytes / 4 + 1);
    clear(words.data(), 4 * words.size(), stream);
    if (bitmap) {
      cuda::set_bits(kept.positions.data(), kept.count, words.data(), stream);
    } else {
      cuda::pack_positions(kept.positions.data(), kept.count, shape_.position_bits(n), words.data(), stream);
    }
    Bytes head;
    append(head, static_cast<std::uint8_t>(bitmap ? 1 : 0));
    append(head, static_cast<std::uint64_t>(kept.count));
    DevicePayload payload = new_payload(x, kDeviceHeadBytes + position_bytes + values.size);
    auto* const out = payload.bytes.data_ptr<std::uint8_t>();
    send(out, head.data(), head.size(), stream);
    copy(out + kDeviceHeadBytes, words.data(), position_bytes, stream);
    if (values.size > 0) copy(out + kDeviceHeadBytes + position_bytes, values.bytes.data_ptr(), values.size, stream);
    return payload;
  }

  TopKShape shape_;
  std::unique_ptr<DeviceCodec> inner_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_topk_device_codec(TopKShape shape, std::unique_ptr<DeviceCodec> inner) {
  return inner == nullptr ? nullptr : std::make_unique<TopKDeviceCodec>(std::move(shape), std::move(inner));
}

}  // namespace epipe::codec
