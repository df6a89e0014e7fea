#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/plain.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;

class PlainDeviceCodec final : public DeviceCodec {
 public:
  explicit PlainDeviceCodec(PlainFormat format)
      : format_(static_cast<cuda::Format>(format)), bytes_(format == PlainFormat::kFp32 ? 4 : 2) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext&) override {
    const auto n = static_cast<std::size_t>(x.numel());
    DevicePayload payload = new_payload(x, n * bytes_);
    payload.fault = new_word(x);
    auto* const unfit = reinterpret_cast<std::uint32_t*>(payload.fault.data_ptr<std::int32_t>());
    clear(unfit, 4, stream_of(x));
    cuda::store_plain(x.data_ptr<float>(), n, format_, payload.bytes.data_ptr(), unfit, stream_of(x));
    return payload;
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView) const override {
    const DeviceArray<std::uint32_t> unfit(x, 1);
    clear(unfit.data(), 4, stream_of(x));
    cuda::load_plain(in.bytes.data_ptr(), static_cast<std::size_t>(x.numel()), format_, x.data_ptr<float>(), unfit.data(), stream_of(x));
    return sound(unfit.data(), in, stream_of(x));
  }

 private:
  cuda::Format format_;
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_plain_device_codec(PlainFormat format) { return std::make_unique<PlainDeviceCodec>(format); }

}  // namespace epipe::codec
