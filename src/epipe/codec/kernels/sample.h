#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"

// A reproducible sample of a whole tensor.
namespace epipe::kernels {

// The index of sample j of m, from n values: one in each of m equal strata, at a fixed pseudo-random place in it, so that
// no stride of the tensor's own dims can line up with the sample. m <= n, and m * n must fit 64 bits.
std::size_t sample_index(std::size_t j, std::size_t m, std::size_t n);

// The keys of m samples, in the order of the tensor; m == x.size() gives every key.
std::vector<Key> sample_keys(std::span<const float> x, KeyOf of, std::size_t m, ThreadPool* pool);

// Ascending, by radix.
void sort_keys(std::vector<Key>& keys);

}  // namespace epipe::kernels
