#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

// Mixed precision: weights, gradients of weights and optimizer state stay float32; LibTorch's autocast computes matrix products and
// convolutions in the 16-bit type. What differs between LibTorch's versions is in autocast.cpp.
namespace epipe::layer {

enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };

// "fp32", "bf16", "fp16"; std::invalid_argument otherwise.
Precision parse_precision(const std::string& name);
std::string to_string(Precision precision);

// Whether this LibTorch convolves and multiplies in this precision on such a device; tried out.
bool can_compute(torch::DeviceType device, Precision precision);

// The type that products of x compute in on this thread: that of the precision, or x's own.
torch::ScalarType product_type(const torch::Tensor& x);
// Weights that are kept in 16 bits, for a product with x; others are as they are.
torch::Tensor in_type_of(const torch::Tensor& weight, const torch::Tensor& x);

// While it lives, operators of this thread on the device compute in the precision. With kFp32 it does nothing.
class Autocast {
 public:
  // `keep_casts`: weights that were cast are found again by later forwards of this thread, with the graph they were cast in. So a
  // forward without gradients must not keep them where one with gradients follows.
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

// How long casts of weights are kept, on its thread: one step, because the next one has other weights.
class CastScope {
 public:
  CastScope();
  ~CastScope();
  CastScope(const CastScope&) = delete;
  CastScope& operator=(const CastScope&) = delete;
};

}  // namespace epipe::layer
