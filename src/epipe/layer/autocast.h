#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

// Mixed precision: weights, gradients of weights and optimizer state stay float32; LibTorch's autocast computes matrix products and
// convolutions in the 16-bit type. Differences between LibTorch versions are handled in autocast.cpp.
namespace epipe::layer {

enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };

// "fp32", "bf16", "fp16"; otherwise throws std::invalid_argument.
Precision parse_precision(const std::string& name);
std::string to_string(Precision precision);

// Whether this LibTorch can convolve and multiply in this precision on such a device; found by trying. Where only oneDNN stands in the way,
// the process computes without it from then on.
bool can_compute(torch::DeviceType device, Precision precision);

// The type in which this thread computes products of x: the autocast type, or x's own.
torch::ScalarType product_type(const torch::Tensor& x);
// Converts weights stored in 16 bits for a product with x; returns others unchanged.
torch::Tensor in_type_of(const torch::Tensor& weight, const torch::Tensor& x);

// While it lives, this thread's operators on the device compute in the precision. With kFp32 it does nothing.
class Autocast {
 public:
  // `keep_casts`: later forwards of this thread reuse cast weights, with the graph they were cast in. So a forward without gradients must
  // not keep them if one with gradients follows.
  Autocast(torch::DeviceType device, Precision precision, bool keep_casts);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool active_;
  bool was_enabled_ = false;
  bool kept_casts_ = false;
  torch::ScalarType was_type_ = torch::kFloat32;
};

// The lifetime of cached weight casts on its thread: one step, because the weights change after it.
class CastScope {
 public:
  CastScope();
  ~CastScope();
  CastScope(const CastScope&) = delete;
  CastScope& operator=(const CastScope&) = delete;
};

}  // namespace epipe::layer
