#pragma once

#include <span>
#include <vector>

#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/wire/tensor_spec.h"

namespace epipe::codec {

// At every place of [N, C, H, W] the product of a matrix [C, C] with its channels. `out` may be `x`.
void transform_channels(const wire::TensorSpec& tensor, std::span<const float> matrix, const kernels::Kernels& kernels, ThreadPool* pool,
                        std::span<const float> x, std::span<float> out);

}  // namespace epipe::codec
