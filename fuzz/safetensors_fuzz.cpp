// Any bytes are weights or a named error, and weights that were read can be written and read again.
//
// The input is tried twice: as it is, and with the header's length repaired to end at the last brace, because each mutation of the header
// would break it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "epipe/model/safetensors.h"

namespace {

using namespace epipe;

void parse_safetensors_file(ByteView input) {
  const auto file = model::parse_safetensors(input);
  if (!file) {
    if (file.error().message.empty() || file.error().message.size() > 2000) std::abort();
    return;
  }
  const auto bytes = model::serialize_safetensors(file.value().tensors, file.value().metadata);
  if (!bytes) std::abort();
  const auto again = model::parse_safetensors(bytes.value());
  if (!again) std::abort();
  // Bytes, not tensors: NaN differs from itself.
  if (model::serialize_safetensors(again.value().tensors, again.value().metadata).value() != bytes.value()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView input(reinterpret_cast<const std::byte*>(data), size);
  parse_safetensors_file(input);
  Bytes repaired(input.begin(), input.end());
  const auto brace = std::find(repaired.rbegin(), repaired.rend(), std::byte{'}'}).base();
  const auto end = static_cast<std::uint64_t>(brace - repaired.begin());
  if (end <= sizeof(std::uint64_t)) return 0;
  store(MutableBytes(repaired), 0, end - sizeof(std::uint64_t));
  parse_safetensors_file(repaired);
  return 0;
}
