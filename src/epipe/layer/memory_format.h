#pragma once

#include <torch/types.h>

#include "epipe/layer/layer.h"

// Channels-last: [B,C,H,W] stored as B, H, W, C, the fastest order for convolutions on CUDA devices. Shapes and values do not change;
// files and frames hold values in the order of the shape, whatever the strides.
namespace epipe::layer {

inline bool wants_channels_last(torch::Device device) { return device.is_cuda(); }

// Converts tensors of 4 dims to channels-last and returns others unchanged. Copies only if needed.
Tensors channels_last(Tensors x);

// The same for parameters of 4 dims, the weights of convolutions. Existing references to the parameters stay valid.
void to_channels_last(Layer& layer);

}  // namespace epipe::layer
