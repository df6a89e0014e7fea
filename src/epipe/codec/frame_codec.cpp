#include "epipe/codec/frame_codec.h"

#include <fmt/format.h>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/span.h"

namespace epipe::codec {

Result<void> encode_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at, ThreadPool* pool,
                          Bytes& out) {
  wire::FrameHeader header;
  header.tensor = spec_of(x);
  header.codec = codec.spec();
  header.step = tag.step;
  header.micro_batch = tag.micro_batch;
  header.cut = tag.cut;
  header.part = tag.part;
  header.parts = tag.parts;
  header.direction = tag.direction;
  if (header.tensor.dims.size() > wire::kMaxDims) {
    return Error{ErrorCode::kOutOfRange, fmt::format("a frame holds at most {} dims, got {}", wire::kMaxDims, header.tensor.dims.size())};
  }
  const std::size_t start = out.size();
  wire::FrameWriter frame(header, out);
  if (auto result = codec.encode(x, at, out); !result) {
    out.resize(start);
    return result;
  }
  frame.finish(pool);
  return {};
}

Result<torch::Tensor> decode_frame(ByteView bytes, const wire::Limits& limits, const CodecOptions& options, const torch::Tensor& reuse) {
  const auto frame = wire::read_frame(bytes, limits, options.pool);
  if (!frame) return frame.error();
  return decode_payload(frame.value(), options, reuse);
}

Result<torch::Tensor> decode_payload(const wire::FrameView& frame, const CodecOptions& options, const torch::Tensor& reuse) {
  const auto& [header, payload] = frame;
  if (header.non_finite) return Error{ErrorCode::kNonFinite, "the sender found NaN or Inf in this tensor and sent no values"};
  const auto codec = make_codec(header.codec, options);
  if (!codec) return codec.error();
  const auto bounds = codec.value()->payload_bounds(header.tensor);
  if (payload.size() < bounds.min || payload.size() > bounds.max) return wrong_length(header.codec, bounds, payload.size());
  const std::vector<std::int64_t> sizes(header.tensor.dims.begin(), header.tensor.dims.end());
  torch::Tensor x = reuse.defined() && reuse.is_contiguous() && reuse.sizes() == torch::IntArrayRef(sizes) ? reuse : torch::empty(sizes);
  EPIPE_TRY(codec.value()->decode_into(x, payload));
  return x;
}

std::string chosen_form(ByteView bytes) {
  const auto header_bytes = bytes.size() < wire::kFixedBytes ? bytes.size() : load<std::uint32_t>(bytes, 16);
  const std::size_t spec_at = bytes.size() < wire::kFixedBytes ? 0 : wire::kFixedBytes + 8 * load<std::uint8_t>(bytes, 40);
  if (header_bytes >= bytes.size() || spec_at + 4 > header_bytes) return {};
  const std::string_view spec(reinterpret_cast<const char*>(bytes.data()) + spec_at, 4);
  const bool entropy = spec.starts_with("ec") || spec.starts_with("dct") || spec.starts_with("auto");
  return entropy ? form_name(bytes.subspan(header_bytes)) : std::string();
}

}  // namespace epipe::codec
