// Any bytes are an array or a named error: the .npy reader.
#include <cstdint>
#include <cstdlib>

#include "epipe/data/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto x = epipe::data::parse_npy({reinterpret_cast<const std::byte*>(data), size});
  if (!x && x.error().message.empty()) std::abort();
  return 0;
}
