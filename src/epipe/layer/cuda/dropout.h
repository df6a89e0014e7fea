#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace epipe::layer::cuda {

// dropout() of a tensor on a CUDA device, which is not read by the host: one kernel forward, one backward, no mask in between. Element e
// of sample s is dropped where number e of the sequence of keys[s] is below p.
torch::Tensor dropout(const torch::Tensor& x, std::span<const std::uint64_t> keys, float p, float kept);
// The same with keys that are on the device, int64 [samples], and may change between a forward and the next.
torch::Tensor dropout(const torch::Tensor& x, const torch::Tensor& keys, float p, float kept);

}  // namespace epipe::layer::cuda
