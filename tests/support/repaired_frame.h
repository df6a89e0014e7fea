#pragma once

#include "epipe/base/bytes.h"
#include "epipe/wire/crc32c.h"
#include "epipe/wire/frame.h"
#include "epipe/wire/frame_layout.h"

namespace epipe::testing {

// The frame with the lengths and the checksum of its bytes, where it is long enough to have them.
inline Bytes repaired(ByteView frame) {
  Bytes out(frame.begin(), frame.end());
  const MutableBytes bytes(out);
  if (bytes.size() < wire::kFixedBytes) return out;
  const auto header_bytes = load<std::uint32_t>(bytes, wire::kAtHeaderBytes);
  if (header_bytes > bytes.size()) return out;
  store(bytes, wire::kAtPayloadBytes, static_cast<std::uint64_t>(bytes.size() - header_bytes));
  store(bytes, wire::kAtChecksum, std::uint32_t{0});
  store(bytes, wire::kAtChecksum, wire::crc32c(bytes));
  return out;
}

}  // namespace epipe::testing
