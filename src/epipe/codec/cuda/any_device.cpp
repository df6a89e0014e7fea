#include <c10/cuda/CUDAGuard.h>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

// Kernels load 16 bytes at a time.
torch::Tensor dense_on_device(const torch::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat32, "codecs take float32 tensors, got ", x.scalar_type());
  auto dense = x.detach().contiguous();
  return reinterpret_cast<std::uintptr_t>(dense.data_ptr()) % 16 == 0 ? dense : dense.clone();
}

class OnAnyDevice final : public AnyDeviceCodec {
 public:
  explicit OnAnyDevice(std::unique_ptr<Codec> codec) : codec_(std::move(codec)), device_codec_(codec_->device_codec()) {}

  std::string spec() const override { return codec_->spec(); }
  PayloadBounds payload_bounds(const TensorSpec& tensor) const override { return codec_->payload_bounds(tensor); }

  std::optional<DevicePayload> encode_on_device(const torch::Tensor& x, const EncodeContext& at) override {
    if (!x.is_cuda() || device_codec_ == nullptr || x.numel() == 0) return std::nullopt;
    const c10::cuda::CUDAGuard guard(x.device());
    bring_state_to(Side::kDevice);
    auto payload = device_codec_->encode(dense_on_device(x), at);
    if (payload && !at.frozen) newest_ = Side::kDevice;
    return payload;
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    if (const auto payload = settled(encode_on_device(x, at))) {
      const c10::cuda::CUDAGuard guard(x.device());
      Unwritten room(out, payload->size);
      fetch(room.span().data(), payload->bytes.data_ptr(), payload->size, stream_of(x));
      room.written();
      return {};
    }
    bring_state_to(Side::kHost);
    auto result = codec_->encode(x.is_cuda() ? x.detach().cpu() : x, at, out);
    if (result && !at.frozen) newest_ = Side::kHost;
    return result;
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    if (!x.is_cuda()) return codec_->decode_into(x, in);
    const c10::cuda::CUDAGuard guard(x.device());
    const auto bounds = payload_bounds(spec_of(x));
    if (device_codec_ != nullptr && x.numel() > 0 && in.size() >= bounds.min && in.size() <= bounds.max) {
      const DevicePayload payload = new_payload(x, in.size());
      send(payload.bytes.data_ptr(), in.data(), in.size(), stream_of(x));
      if (device_codec_->decode_into(x, payload, in)) return {};
    }
    // The host finds what is wrong.
    auto on_host = torch::empty(x.sizes());
    EPIPE_TRY(codec_->decode_into(on_host, in));
    x.copy_(on_host);
    return {};
  }

  void decode_on_device(torch::Tensor& x, const DevicePayload& in) const override {
    const c10::cuda::CUDAGuard guard(x.device());
    DevicePayload own = in;
    own.is_own = true;
    if (!device_codec_->decode_into(x, own, in.front)) throw std::logic_error("a payload of our own does not decode: " + spec());
  }

  State state() const override { return newest_ == Side::kDevice ? device_codec_->state() : codec_->state(); }
  void set_state(const State& state) override {
    codec_->set_state(state);
    newest_ = Side::kHost;
  }
  std::unique_ptr<DeviceCodec> device_codec() const override { return codec_->device_codec(); }

 private:
  enum class Side { kBoth, kHost, kDevice };

  // The side that encodes gets the state that the other one left.
  void bring_state_to(Side side) {
    if (newest_ == Side::kBoth || newest_ == side) return;
    if (side == Side::kDevice) device_codec_->set_state(codec_->state());
    if (side == Side::kHost) codec_->set_state(device_codec_->state());
    newest_ = Side::kBoth;
  }

  std::unique_ptr<Codec> codec_;
  std::unique_ptr<DeviceCodec> device_codec_;
  Side newest_ = Side::kBoth;  // who has the state of the last call
};

}  // namespace

std::optional<DevicePayload> settled(std::optional<DevicePayload> payload) {
  if (!payload || !payload->fault.defined()) return payload;
  const c10::cuda::CUDAGuard guard(payload->fault.device());
  if (fetch_one(payload->fault.data_ptr<std::int32_t>(), stream_of(payload->fault)) != 0) return std::nullopt;
  payload->fault.reset();
  return payload;
}

DevicePayload new_payload(const torch::Tensor& x, std::size_t size) {
  constexpr std::size_t kRoom = 32;
  return {torch::empty({static_cast<std::int64_t>(size + kRoom)}, x.options().dtype(torch::kUInt8).requires_grad(false)), size};
}

DevicePayload part_of(const DevicePayload& in, std::size_t begin, std::size_t size) {
  DevicePayload own = new_payload(in.bytes, size);
  auto* const bytes = own.bytes.data_ptr<std::uint8_t>();
  const Stream stream = stream_of(in.bytes);
  clear(bytes + size, 16, stream);
  copy(bytes, in.bytes.data_ptr<std::uint8_t>() + begin, size, stream);
  return own;
}

std::unique_ptr<Codec> on_any_device(std::unique_ptr<Codec> codec) { return std::make_unique<OnAnyDevice>(std::move(codec)); }

}  // namespace epipe::codec
