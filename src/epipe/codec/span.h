#pragma once

#include <torch/types.h>

#include <span>

#include "epipe/base/bytes.h"
#include "epipe/codec/codec.h"

// Bridges between tensors, bytes and the spans that kernels take.
namespace epipe::codec {

// x must be contiguous float32 on the CPU.
inline std::span<const float> values_of(const torch::Tensor& x) { return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())}; }
inline std::span<float> mutable_values_of(torch::Tensor& x) { return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())}; }

// The same values laid out one after the other; copies only when they are not. Throws c10::Error unless float32 on the CPU.
torch::Tensor contiguous_float(const torch::Tensor& x);

// x must not be empty.
bool all_finite(const torch::Tensor& x, const kernels::Kernels& kernels);

// The error for a tensor in which a kernel met a value it could not take: names it and where it is.
Error unencodable(std::span<const float> x, std::string_view codec, float largest);

// "payload of uniform:8 must have 108 bytes, got 7"
Error wrong_length(std::string_view codec, PayloadBounds expected, std::size_t got);

}  // namespace epipe::codec
