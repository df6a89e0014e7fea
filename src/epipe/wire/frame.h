#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/base/thread_pool.h"
#include "epipe/wire/tensor_spec.h"

// One tensor on the wire. docs/wire_format.md is the normative byte table; every number is little-endian.
//
//   0 magic "EPFR" | 4 version u16 | 6 flags u16 | 8 payload_bytes u64 | 16 header_bytes u32 | 20 crc32c u32
//  24 step u64 | 32 micro_batch u32 | 36 cut u16 | 38 direction u8 | 39 dtype u8 | 40 ndim u8 | 41 spec_bytes u8 | 42 part u8 | 43 parts u8
//  | 44 zero 48 dims u64 x ndim | codec spec, ASCII | zeros up to a multiple of 8 | payload
namespace epipe::wire {

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kPrefixBytes = 24;  // enough to tell the length of the frame
inline constexpr std::size_t kFixedBytes = 48;   // up to the dims
inline constexpr std::size_t kMaxSpecBytes = 255;
inline constexpr std::size_t kMaxHeaderBytes = (kFixedBytes + 8 * kMaxDims + kMaxSpecBytes + 7) / 8 * 8;

enum class Direction : std::uint8_t { kForward = 0, kBackward = 1 };

// The type of the sender's and the receiver's tensor. Codecs work on float32; `none` writes the values in their own type.
enum class Dtype : std::uint8_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2 };

struct FrameHeader {
  TensorSpec tensor;
  std::string codec;  // spec string; a decoder needs nothing else
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  std::uint16_t cut = 0;
  std::uint8_t part = 0;  // a cut may carry several tensors per micro-batch; this is tensor `part` of `parts`
  std::uint8_t parts = 1;
  Direction direction = Direction::kForward;
  Dtype dtype = Dtype::kFloat32;
  bool non_finite = false;  // the tensor held NaN or Inf: no payload, and every worker skips the step
};

// What a reader accepts before it allocates anything.
struct Limits {
  std::uint64_t max_payload_bytes = std::uint64_t{1} << 32;
  std::uint64_t max_values = std::uint64_t{1} << 30;
};

struct FrameView {
  FrameHeader header;
  ByteView payload;  // into the bytes that were read
};

// The length of a header with `dim_count` dims and `spec_bytes` characters of spec, zero padding included.
constexpr std::size_t header_bytes(std::size_t dim_count, std::size_t spec_bytes) {
  return (kFixedBytes + 8 * dim_count + spec_bytes + 7) / 8 * 8;
}

// Writes a frame around a payload that is appended directly to `out`, so the payload is never copied.
//   FrameWriter frame(header, out);  codec.encode(x, out);  frame.finish();
class FrameWriter {
 public:
  // `header` must fit the format: at most kMaxDims dims and kMaxSpecBytes of spec.
  FrameWriter(const FrameHeader& header, Bytes& out);
  // Fills in payload length and checksum. The frame is out[start ... end].
  void finish(ThreadPool* pool = nullptr);

 private:
  Bytes& out_;
  std::size_t start_;
  std::size_t header_bytes_;
};

// The length of the whole frame, from its first kPrefixBytes, for transports that must know how much to receive.
Result<std::uint64_t> frame_bytes(ByteView prefix, const Limits& limits);

// Checks everything the format promises, lengths first, and returns views into `bytes`, which must be exactly one frame.
Result<FrameView> read_frame(ByteView bytes, const Limits& limits, ThreadPool* pool = nullptr);

// The same for a frame that this process has just written: no limits, and no checksum verification.
Result<FrameView> read_own_frame(ByteView bytes);

}  // namespace epipe::wire
