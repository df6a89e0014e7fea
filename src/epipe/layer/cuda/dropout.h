#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace epipe::layer::cuda {

// dropout() of a tensor on a CUDA device without copies to the host: one kernel forward, one backward, no mask in between. Element e of
// sample s is dropped if number e of the sequence of keys[s] is below p.
torch::Tensor dropout(const torch::Tensor& x, std::span<const std::uint64_t> keys, float p, float kept);
// The same with keys on the device, int64 [samples], which may change between forwards.
torch::Tensor dropout(const torch::Tensor& x, const torch::Tensor& keys, float p, float kept);

}  // namespace epipe::layer::cuda
