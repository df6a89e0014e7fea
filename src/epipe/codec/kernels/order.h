#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"

// Order statistics without sorting.
namespace epipe::kernels {

struct Order {
  KeyRange range;         // of the whole tensor; the keys below mean nothing unless all_finite(range)
  std::vector<Key> keys;  // the key at each asked rank of the ascending order
};

// The keys that a sort of x would leave at `ranks` (ascending, each < x.size()). x must not be empty. Exact for any x.
//
// A sample tells roughly where each rank lies; one pass then counts what is below and above that bracket and collects the
// few keys inside it, among which the rank is looked up. When a bracket misses, radix histograms over the whole tensor decide.
Order order_statistics(std::span<const float> x, KeyOf of, std::span<const std::size_t> ranks, const Kernels& kernels, ThreadPool* pool);

// How many values of n are sampled to place the brackets.
std::size_t bracket_sample_size(std::size_t n);

}  // namespace epipe::kernels
