#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

namespace epipe::kernels::cuda {

// sums[m] of map m, as codec/channel_means.h adds them up.
void sum_maps(const float* x, std::uint64_t maps, std::uint64_t map, double* sums, Stream stream);
// x += shifts[m % channels] in map m.
void add_to_channels(float* x, std::uint64_t maps, std::uint64_t map, const float* shifts, unsigned channels, Stream stream);

}  // namespace epipe::kernels::cuda
