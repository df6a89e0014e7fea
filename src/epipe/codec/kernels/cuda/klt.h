#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

namespace epipe::kernels::cuda {

inline constexpr unsigned kMostChannels = 64;

// At every place of [images, channels, map] the product of a matrix [channels, channels] with its channels. y may be x.
void multiply_channels(const float* x, std::uint64_t images, unsigned channels, std::uint64_t map, const float* matrix, float* y,
                       Stream stream);

}  // namespace epipe::kernels::cuda
