#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "epipe/codec/kernels/cuda/stream.h"

namespace epipe::layer::cuda {

enum class Element : std::uint32_t { kFloat, kHalf, kBFloat16 };

// y = x * kept, or x * 0 if the element is dropped: number e of the sequence of keys[s] is below p, for element e of sample s. x and y are
// on the device, [keys.size(), values]; keys are on the host and may be freed when this returns. `kept` is exact in the element type.
void drop(const void* x, void* y, Element element, std::span<const std::uint64_t> keys, std::size_t values, float p, float kept,
          kernels::cuda::Stream stream);
// The same with keys on the device, [samples].
void drop(const void* x, void* y, Element element, const std::uint64_t* keys, std::size_t samples, std::size_t values, float p, float kept,
          kernels::cuda::Stream stream);

}  // namespace epipe::layer::cuda
