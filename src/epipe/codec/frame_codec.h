#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "epipe/codec/codec.h"
#include "epipe/codec/cuda/device_codec.h"
#include "epipe/wire/frame.h"

// Tensor <-> frame: what crosses a cut, and what an .epf file holds.
namespace epipe::codec {

// Which tensor of a run this is; travels in the header.
struct FrameTag {
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  std::uint16_t cut = 0;
  std::uint8_t part = 0;  // tensor `part` of the `parts` that cross the cut together
  std::uint8_t parts = 1;
  wire::Direction direction = wire::Direction::kForward;
};

// Appends one frame of a float32, float16 or bfloat16 tensor. On an error `out` is as before. Codecs see float32; of 16-bit tensors `none`
// writes 16 bits per value.
Result<void> encode_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at, ThreadPool* pool, Bytes& out);

// A frame whose payload stays on a CUDA device, for a decoder of this process. Its bytes are those of the frame that encode_frame() makes.
struct DeviceFrame {
  wire::FrameHeader header;
  DevicePayload payload;

  std::uint64_t wire_bytes() const;
};

// Nothing where the tensor has to go by way of the host, or cannot be encoded: encode_frame() does it, or says why. The latter may show
// later, by payload.fault.
std::optional<DeviceFrame> encode_device_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at);
// Waits until it has shown.
std::optional<DeviceFrame> settled(DeviceFrame frame);

// How long a frame is with the codec none.
std::uint64_t plain_frame_bytes(const torch::Tensor& x);

// Appends the frame that stands for a tensor with NaN or Inf: flagged, no values.
void encode_non_finite(const Codec& codec, const torch::Tensor& x, const FrameTag& tag, Bytes& out);

// The tensor of a frame by the codec the frame names, in the type the frame names. Reads into `reuse` when it has the right shape and type,
// else into a new tensor.
Result<torch::Tensor> decode_frame(ByteView frame, const wire::Limits& limits, const CodecOptions& options,
                                   const torch::Tensor& reuse = {});

// What an entropy codec chose for the tensor of a frame: "dct 16", "blocks 16", "rows", "rows running", "rows neighbours", "zeros" or
// "plain". Empty for other codecs, and for a frame without values.
std::string chosen_form(const wire::FrameView& frame);
std::string chosen_form(const DeviceFrame& frame);

// What a frame without values stands for: its shape and type, filled with NaN.
torch::Tensor not_a_number(const wire::FrameHeader& header);

// decode_frame() for a frame that was read before.
Result<torch::Tensor> decode_payload(const wire::FrameView& frame, const CodecOptions& options, const torch::Tensor& reuse = {});

using CodecFactory = std::function<Result<std::unique_ptr<Codec>>(std::string_view spec, const CodecOptions& options)>;

// Decodes the frames of one codec, which is made once. A frame needs no history, so that one decoder serves all tensors of a cut. For one
// thread at a time, as the pool is.
class FrameDecoder {
 public:
  static Result<FrameDecoder> make(std::string_view spec, const CodecOptions& options, const CodecFactory& factory = make_codec);

  const std::string& spec() const { return spec_; }
  // As decode_payload(). A frame of another codec is an error.
  Result<torch::Tensor> decode(const wire::FrameView& frame, const torch::Tensor& reuse = {}) const;
  // On the frame's device; queued, and not waited for.
  torch::Tensor decode(const DeviceFrame& frame) const;

 private:
  FrameDecoder() = default;

  std::string spec_;
  torch::Device device_ = torch::kCPU;
  std::map<std::string, std::unique_ptr<Codec>> codecs_;  // by payload: `none` writes 16-bit tensors as fp16 or bf16
};

}  // namespace epipe::codec
