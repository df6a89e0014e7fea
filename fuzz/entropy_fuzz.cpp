// Any payload of the entropy codecs is finite values or a named error, and the same on every instruction set.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "entropy_shapes.h"
#include "epipe/codec/entropy_payload.h"

namespace {

using namespace epipe;

bool decode_entropy(const wire::TensorSpec& tensor, ByteView payload, const kernels::Kernels& kernels, std::vector<float>& x) {
  codec::ReflectionReader remembers_nothing;
  const auto result = codec::decode_coded(tensor, payload, kernels, nullptr, remembers_nothing, x);
  if (!result && (name(result.error().code) == "unknown" || result.error().message.empty())) std::abort();
  return result.ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto& shapes = fuzz::entropy_shapes();
  const wire::TensorSpec tensor{shapes[data[0] % shapes.size()]};
  const ByteView payload(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  std::vector<float> expected(tensor.values());
  std::vector<float> actual(tensor.values());
  const bool sound = decode_entropy(tensor, payload, kernels::scalar(), expected);
  if (decode_entropy(tensor, payload, kernels::best(), actual) != sound) std::abort();
  if (!sound) return 0;
  for (const float v : expected) {
    if (!std::isfinite(v)) std::abort();
  }
  if (std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) != 0) std::abort();
  return 0;
}
