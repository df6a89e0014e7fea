#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"

// Exact selection by radix histograms: count the keys per slice of their range, keep only the slices that hold a wanted
// rank, and repeat inside them. At most three rounds, whatever the keys are.
namespace epipe::kernels {

using Keys = std::vector<Key, UninitializedAllocator<Key>>;

// The keys at `ranks` (ascending) of the ascending order, all of them within `range`. Reorders `keys`.
void select_keys(Keys& keys, KeyRange range, std::span<const std::size_t> ranks, std::span<Key> answers);

// The same straight from a tensor whose key range is known.
std::vector<Key> select_by_histograms(std::span<const float> x, KeyOf of, std::span<const std::size_t> ranks, KeyRange range,
                                      ThreadPool* pool);

}  // namespace epipe::kernels
