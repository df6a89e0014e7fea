// Any bytes are a tensor or a named error: the frame reader and every codec's decoder.
//
// The input is tried twice: as it is, and with lengths and checksum repaired, because no mutation finds a valid CRC by luck.
#include <torch/types.h>

#include <cstdint>
#include <cstdlib>

#include "epipe/codec/frame_codec.h"
#include "support/repaired_frame.h"

namespace {

using namespace epipe;

constexpr wire::Limits kLimits{std::uint64_t{1} << 20, std::uint64_t{1} << 16};

void decode_as_frame(ByteView frame) {
  const auto x = codec::decode_frame(frame, kLimits, {});
  if (!x) {
    if (name(x.error().code) == "unknown" || x.error().message.empty()) std::abort();  // every error has a name and a reason
    return;
  }
  if (!torch::isfinite(x.value()).all().item<bool>()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView input(reinterpret_cast<const std::byte*>(data), size);
  decode_as_frame(input);
  decode_as_frame(epipe::testing::repaired(input));
  return 0;
}
