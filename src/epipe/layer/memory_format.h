#pragma once

#include <torch/types.h>

#include "epipe/layer/layer.h"

// Channels-last: [B,C,H,W] stored as B, H, W, C, which convolutions on CUDA devices are fastest in. Shapes and values stay; files and
// frames hold values in the order of the shape, whatever the strides.
namespace epipe::layer {

inline bool wants_channels_last(torch::Device device) { return device.is_cuda(); }

// Tensors of 4 dims in channels-last, others as they are. Copies only what is not so already.
Tensors channels_last(Tensors x);

// The same for parameters of 4 dims: weights of convolutions. They stay the same parameters to whoever holds them.
void to_channels_last(Layer& layer);

}  // namespace epipe::layer
