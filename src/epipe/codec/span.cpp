#include "epipe/codec/span.h"

#include <fmt/format.h>

#include <cmath>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/kernels/key.h"

namespace epipe::codec {

torch::Tensor contiguous_float(const torch::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.device().is_cpu(), "codecs take float32 tensors on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  return x.detach().contiguous();
}

std::unique_ptr<DeviceCodec> Codec::device_codec() const { return nullptr; }

TensorSpec spec_of(const torch::Tensor& x) {
  TensorSpec spec;
  for (const auto dim : x.sizes()) spec.dims.push_back(static_cast<std::uint64_t>(dim));
  return spec;
}

bool all_finite(const torch::Tensor& x, const kernels::Kernels& kernels) {
  return kernels::all_finite(kernels.key_range(values_of(x), kernels::KeyOf::kValue));
}

Error unencodable(std::span<const float> x, std::string_view codec, float largest) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) {
      return {ErrorCode::kNonFinite, fmt::format("value {} of {} is {}; only finite values can be encoded", i, x.size(), x[i])};
    }
    if (std::abs(x[i]) > largest) {
      return {ErrorCode::kOutOfRange,
              fmt::format("value {} of {} is {}, beyond the {} that {} holds; use bf16 or none", i, x.size(), x[i], largest, codec)};
    }
  }
  return {ErrorCode::kOutOfRange, fmt::format("a value rounds to infinity in {}; use none", codec)};
}

Error wrong_length(std::string_view codec, PayloadBounds expected, std::size_t got) {
  const std::string range =
      expected.min == expected.max ? fmt::format("{}", expected.min) : fmt::format("{} to {}", expected.min, expected.max);
  return {ErrorCode::kBadPayload, fmt::format("a payload of {} must have {} bytes for this shape, got {}", codec, range, got)};
}

}  // namespace epipe::codec
