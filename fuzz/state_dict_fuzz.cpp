// Any bytes are a state dict or a named error.
//
// The input is tried as an archive, and as the pickle within one: a mutation would break the archive's checksum before the pickle is read.
#include <cstdint>
#include <cstdlib>

#include "epipe/model/state_dict.h"
#include "support/state_dicts.h"

namespace {

void parse_archive(epipe::ByteView input) {
  const auto tensors = epipe::model::parse_state_dict(input);
  if (!tensors) {
    if (tensors.error().message.empty() || tensors.error().message.size() > 2000) std::abort();
    return;
  }
  // Every value can be reached, and there are no more of them than bytes.
  std::size_t last = 0;
  for (const auto& [name, x] : tensors.value()) last += x.numel() > 0 ? x.contiguous().nbytes() : 0;
  if (tensors.value().size() == 1 && last > input.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parse_archive({reinterpret_cast<const std::byte*>(data), size});
  const std::string pickle(reinterpret_cast<const char*>(data), size);
  const std::string archive = epipe::testing::zip_of({{"m/data.pkl", pickle}, {"m/data/0", epipe::testing::float_bytes({1, 2, 3, 4})}});
  parse_archive(epipe::testing::bytes_of(archive));
  return 0;
}
