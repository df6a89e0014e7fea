// Any bytes are records, members, pixels, words or a named error: the first byte says which reader gets the rest.
#include <algorithm>
#include <cstdlib>

#include "epipe/data/cifar.h"
#include "epipe/data/fetch/archive.h"
#include "epipe/data/image/image.h"
#include "epipe/data/text/bpe.h"

namespace {

template <typename T>
void check_result(const epipe::Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
}

// vocab.json, a zero, merges.txt. What was read takes any text.
void check_bpe(epipe::ByteView bytes) {
  const auto zero = std::find(bytes.begin(), bytes.end(), std::byte{0});
  const auto vocab = static_cast<std::size_t>(zero - bytes.begin());
  const auto bpe = epipe::data::Bpe::parse(bytes.first(vocab), bytes.subspan(std::min(bytes.size(), vocab + 1)));
  check_result(bpe);
  if (!bpe) return;
  epipe::data::TokenIds ids;
  bpe.value().encode("a caf\xc3\xa9 12\xff", ids);
  for (const auto id : ids) {
    if (id < 0 || id >= bpe.value().vocabulary()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe::data;
  if (size == 0) return 0;
  const epipe::ByteView bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  CifarRecords records;
  switch (data[0] % 6) {
    case 0: check_result(append_cifar(bytes, 1, 10, records)); break;
    case 1: check_result(append_cifar(bytes, 2, 100, records)); break;
    case 2: check_result(parse_tar(bytes)); break;
    case 3: check_result(gunzip(bytes, std::size_t{1} << 22)); break;
    case 4: check_result(decode_image(bytes)); break;
    case 5: check_bpe(bytes); break;
  }
  if (records.pixels.size() != records.labels.size() * kCifarPixels) std::abort();
  return 0;
}
