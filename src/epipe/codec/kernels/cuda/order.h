#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "epipe/codec/kernels/cuda/stream.h"
#include "epipe/codec/kernels/kernels.h"

// Order statistics on the device, exact for any tensor.
namespace epipe::kernels::cuda {

// The smallest and the largest key; n > 0.
void key_range(const float* x, std::size_t n, KeyOf of, KeyRange* range, Stream stream);

// Device memory that select_keys() needs for as many ranks.
std::size_t select_room(std::size_t n, std::size_t ranks);

// answers[r] = the key that a sort of x would leave at host_ranks[r]; the ranks ascend, each below n; and the range of all keys, unless
// it is null. Three histograms, of 12, 10 and 10 bits, each over the keys that agree with a rank's key so far; many ranks are looked up in
// a sorted copy instead.
void select_keys(const float* x, std::size_t n, KeyOf of, std::span<const std::uint64_t> host_ranks, Key* answers, KeyRange* range,
                 void* room, Stream stream);

// samples[j] = x[sample_index(j, m, n)].
void sample_values(const float* x, std::size_t n, float* samples, std::size_t m, Stream stream);

}  // namespace epipe::kernels::cuda
