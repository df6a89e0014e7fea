#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

// codec/channel_means.h on the device: the same sums in the same order.
namespace epipe::kernels::cuda {

struct Maps {
  std::uint64_t samples, channels;
  std::uint64_t values;  // of one map

  std::uint64_t count() const { return samples * channels; }
};

// sums[m] of map m.
void sum_maps(const float* x, const Maps& maps, double* sums, Stream stream);
// Replaces the means that channels shall have by what takes them there.
void means_to_shifts(const double* sums, const Maps& maps, float* means, Stream stream);
// x += shifts[c] in the maps of channel c.
void add_to_channels(float* x, const Maps& maps, const float* shifts, Stream stream);

}  // namespace epipe::kernels::cuda
