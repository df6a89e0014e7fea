#include "epipe/codec/frame_codec.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

using wire::Dtype;

constexpr std::string_view kNoneSpec = "none";

Dtype dtype_of(const torch::Tensor& x) {
  return x.scalar_type() == torch::kHalf ? Dtype::kFloat16 : x.scalar_type() == torch::kBFloat16 ? Dtype::kBfloat16 : Dtype::kFloat32;
}

torch::ScalarType scalar_type(Dtype dtype) {
  return dtype == Dtype::kFloat16 ? torch::kHalf : dtype == Dtype::kBfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

// The codec that writes the payload: `none` of a 16-bit tensor is that type's own.
std::string payload_codec(const std::string& spec, Dtype dtype) {
  if (spec != kNoneSpec || dtype == Dtype::kFloat32) return spec;
  return dtype == Dtype::kFloat16 ? "fp16" : "bf16";
}

// Values beyond the type's range saturate: a lossy codec may decode to a little more than it was given.
torch::Tensor in_type(torch::Tensor x, Dtype dtype) {
  if (dtype == Dtype::kFloat32) return x;
  const double largest = dtype == Dtype::kFloat16 ? std::numeric_limits<c10::Half>::max() : std::numeric_limits<c10::BFloat16>::max();
  return x.clamp_(-largest, largest).to(scalar_type(dtype));
}

wire::FrameHeader header_of(const Codec& codec, const torch::Tensor& x, const FrameTag& tag) {
  wire::FrameHeader header;
  header.tensor = spec_of(x);
  header.codec = codec.spec();
  header.dtype = dtype_of(x);
  header.step = tag.step;
  header.micro_batch = tag.micro_batch;
  header.cut = tag.cut;
  header.part = tag.part;
  header.parts = tag.parts;
  header.direction = tag.direction;
  return header;
}

Result<void> encode_payload(Codec& codec, const torch::Tensor& x, const EncodeContext& at, ThreadPool* pool, Bytes& out) {
  const Dtype dtype = dtype_of(x);
  if (dtype == Dtype::kFloat32) return codec.encode(x, at, out);
  const std::string spec = codec.spec();
  if (const std::string own = payload_codec(spec, dtype); own != spec) {
    const auto plain = make_codec(own, {pool});
    return plain ? plain.value()->encode(x.to(torch::kFloat32), at, out) : Result<void>(plain.error());
  }
  return codec.encode(x.to(torch::kFloat32), at, out);
}

std::string form_of(const std::string& spec, ByteView payload) {
  const bool entropy = spec.starts_with("ec") || spec.starts_with("dct") || spec.starts_with("auto");
  return entropy ? form_name(payload) : std::string();
}

// A new tensor, or `reuse` where it is what the frame holds.
torch::Tensor room_for(const wire::FrameHeader& header, torch::Device device, const torch::Tensor& reuse) {
  const std::vector<std::int64_t> sizes(header.tensor.dims.begin(), header.tensor.dims.end());
  const bool fits = reuse.defined() && reuse.is_contiguous() && reuse.scalar_type() == torch::kFloat32 &&
                    header.dtype == wire::Dtype::kFloat32 && reuse.sizes() == torch::IntArrayRef(sizes) && reuse.device() == device;
  return fits ? reuse : torch::empty(sizes, device);
}

Result<torch::Tensor> decode_by(const Codec& codec, const wire::FrameView& frame, torch::Device device, const torch::Tensor& reuse) {
  const auto& [header, payload] = frame;
  if (header.non_finite) return Error{ErrorCode::kNonFinite, "the sender found NaN or Inf in this tensor and sent no values"};
  const auto bounds = codec.payload_bounds(header.tensor);
  if (payload.size() < bounds.min || payload.size() > bounds.max) return wrong_length(header.codec, bounds, payload.size());
  torch::Tensor x = room_for(header, device, reuse);
  EPIPE_TRY(codec.decode_into(x, payload));
  return in_type(std::move(x), header.dtype);
}

}  // namespace

std::uint64_t plain_frame_bytes(const torch::Tensor& x) {
  return wire::header_bytes(static_cast<std::size_t>(x.dim()), kNoneSpec.size()) + x.nbytes();
}

Result<void> encode_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at, ThreadPool* pool,
                          Bytes& out) {
  const wire::FrameHeader header = header_of(codec, x, tag);
  if (header.tensor.dims.size() > wire::kMaxDims) {
    return Error{ErrorCode::kOutOfRange, fmt::format("a frame holds at most {} dims, got {}", wire::kMaxDims, header.tensor.dims.size())};
  }
  const std::size_t start = out.size();
  wire::FrameWriter frame(header, out);
  if (auto result = encode_payload(codec, x, at, pool, out); !result) {
    out.resize(start);
    return result;
  }
  frame.finish(pool);
  return {};
}

std::uint64_t DeviceFrame::wire_bytes() const { return wire::header_bytes(header.tensor.dims.size(), header.codec.size()) + payload.size; }

std::optional<DeviceFrame> encode_device_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at) {
  auto* const on_device = dynamic_cast<AnyDeviceCodec*>(&codec);
  const wire::FrameHeader header = header_of(codec, x, tag);
  const bool fits = header.tensor.dims.size() <= wire::kMaxDims && payload_codec(header.codec, header.dtype) == header.codec;
  if (on_device == nullptr || !fits) return std::nullopt;
  auto payload = on_device->encode_on_device(x.to(torch::kFloat32), at);
  if (!payload) return std::nullopt;
  return DeviceFrame{header, std::move(*payload)};
}

std::optional<DeviceFrame> settled(DeviceFrame frame) {
  auto payload = settled(std::move(frame.payload));
  if (!payload) return std::nullopt;
  return DeviceFrame{std::move(frame.header), std::move(*payload)};
}

void encode_non_finite(const Codec& codec, const torch::Tensor& x, const FrameTag& tag, Bytes& out) {
  wire::FrameHeader header = header_of(codec, x, tag);
  header.non_finite = true;
  wire::FrameWriter(header, out).finish();
}

torch::Tensor not_a_number(const wire::FrameHeader& header) {
  const std::vector<std::int64_t> sizes(header.tensor.dims.begin(), header.tensor.dims.end());
  return torch::full(sizes, std::numeric_limits<float>::quiet_NaN(), scalar_type(header.dtype));
}

Result<torch::Tensor> decode_frame(ByteView bytes, const wire::Limits& limits, const CodecOptions& options, const torch::Tensor& reuse) {
  const auto frame = wire::read_frame(bytes, limits, options.pool);
  if (!frame) return frame.error();
  return decode_payload(frame.value(), options, reuse);
}

Result<torch::Tensor> decode_payload(const wire::FrameView& frame, const CodecOptions& options, const torch::Tensor& reuse) {
  const auto codec = make_codec(payload_codec(frame.header.codec, frame.header.dtype), options);
  if (!codec) return codec.error();
  return decode_by(*codec.value(), frame, options.device, reuse);
}

Result<FrameDecoder> FrameDecoder::make(std::string_view spec, const CodecOptions& options, const CodecFactory& factory) {
  auto codec = factory(spec, options);
  if (!codec) return codec.error();
  FrameDecoder decoder;
  decoder.spec_ = codec.value()->spec();
  decoder.device_ = options.device;
  decoder.codecs_.emplace(decoder.spec_, std::move(codec).value());
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const std::string own = payload_codec(decoder.spec_, dtype);
    if (own == decoder.spec_) continue;
    auto plain = make_codec(own, options);
    if (!plain) return plain.error();
    decoder.codecs_.emplace(own, std::move(plain).value());
  }
  return decoder;
}

Result<torch::Tensor> FrameDecoder::decode(const wire::FrameView& frame, const torch::Tensor& reuse) const {
  const wire::FrameHeader& header = frame.header;
  if (header.codec != spec_) return Error{ErrorCode::kBadSpec, fmt::format("expected a frame by {}, got one by {}", spec_, header.codec)};
  return decode_by(*codecs_.at(payload_codec(spec_, header.dtype)), frame, device_, reuse);
}

torch::Tensor FrameDecoder::decode(const DeviceFrame& frame) const {
  const auto* const codec = dynamic_cast<const AnyDeviceCodec*>(codecs_.at(spec_).get());
  if (codec == nullptr || frame.header.codec != spec_) {
    throw std::logic_error(fmt::format("a decoder of {} got a frame on a device by {}", spec_, frame.header.codec));
  }
  torch::Tensor x = room_for(frame.header, frame.payload.bytes.device(), {});
  codec->decode_on_device(x, frame.payload);
  return in_type(std::move(x), frame.header.dtype);
}

std::string chosen_form(const wire::FrameView& frame) { return form_of(frame.header.codec, frame.payload); }
std::string chosen_form(const DeviceFrame& frame) { return form_of(frame.header.codec, frame.payload.front); }

}  // namespace epipe::codec
