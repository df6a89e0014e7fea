#pragma once

#include "epipe/codec/codec.h"
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

// Appends one frame. On an error `out` is as before.
Result<void> encode_frame(Codec& codec, const torch::Tensor& x, const FrameTag& tag, const EncodeContext& at, ThreadPool* pool, Bytes& out);

// The tensor of a frame by the codec the frame names. Reads into `reuse` when it has the right shape, else into a new tensor.
Result<torch::Tensor> decode_frame(ByteView frame, const wire::Limits& limits, const CodecOptions& options,
                                   const torch::Tensor& reuse = {});

// What an entropy codec chose for the tensor of a frame: "dct 16", "blocks 16", "rows", "rows running", "rows neighbours", "zeros" or
// "plain". Empty for other codecs, and for bytes that are no frame.
std::string chosen_form(ByteView frame);

// decode_frame() for a frame that was read before.
Result<torch::Tensor> decode_payload(const wire::FrameView& frame, const CodecOptions& options, const torch::Tensor& reuse = {});

}  // namespace epipe::codec
