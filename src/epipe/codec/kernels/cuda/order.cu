#include "epipe/codec/kernels/cuda/order.h"

#include <cub/device/device_radix_sort.cuh>

#include <climits>

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr std::size_t kMaxRanks = 64;  // beyond this a sort is cheaper
constexpr unsigned kGroups = 8;        // histograms of one launch after the first
constexpr unsigned kFirstBins = 4096;  // the upper 12 bits
constexpr unsigned kNextBins = 1024;   // then 10 and 10
constexpr unsigned kFirstShift = 20;
constexpr unsigned kNextBits = 10;
constexpr unsigned kThreads = 512;

using Count = unsigned long long;

// What is known of every rank between the passes.
struct Selection {
  std::uint32_t prefix[kMaxRanks];  // the upper bits of its key, sign flipped so that they ascend
  Count rank[kMaxRanks];            // among the keys with that prefix
  unsigned group[kMaxRanks];        // whose histogram it is looked up in
  std::uint32_t group_prefix[kMaxRanks];
  unsigned groups;
  Count bins[kFirstBins > kMaxRanks* kNextBins ? kFirstBins : kMaxRanks* kNextBins];
};

__device__ std::uint32_t ascending(Key key) { return static_cast<std::uint32_t>(key) ^ 0x80000000U; }
constexpr std::uint32_t kAscendingZero = 0x80000000U;

// By all threads of a warp.
__device__ void widen(KeyRange* range, Key low, Key high) {
  low = __reduce_min_sync(kAllLanes, low);
  high = __reduce_max_sync(kAllLanes, high);
  if (threadIdx.x % kWarp != 0) return;
  atomicMin(&range->min, low);
  atomicMax(&range->max, high);
}

template <KeyOf kOf>
__global__ void range_kernel(const float* __restrict__ x, std::size_t n, KeyRange* range) {
  Key low = INT_MAX;
  Key high = INT_MIN;
  for_values(x, n, [&](float v) {
    const Key key = key_of<kOf>(v);
    low = min(low, key);
    high = max(high, key);
  });
  widen(range, low, high);
}

__global__ void start_range_kernel(KeyRange* range) { *range = {INT_MAX, INT_MIN}; }

// Four copies of the bins, by lane: neighbours in a tensor are alike, and their increments would queue up. Zeros, of which there are
// often most, are counted apart.
constexpr unsigned kCopies = 4;
constexpr std::size_t kFirstRoom = kCopies * kFirstBins * sizeof(std::uint32_t);

template <KeyOf kOf>
__global__ void __launch_bounds__(kThreads)
    first_histogram_kernel(const float* __restrict__ x, std::size_t n, Selection* selection, KeyRange* range) {
  extern __shared__ std::uint32_t bins[];
  for (unsigned b = threadIdx.x; b < kCopies * kFirstBins; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  std::uint32_t* const own = bins + threadIdx.x % kCopies;
  std::uint32_t zeros = 0;
  Key low = INT_MAX;
  Key high = INT_MIN;
  for_values(x, n, [&](float v) {
    const Key key = key_of<kOf>(v);
    low = min(low, key);
    high = max(high, key);
    if (key == 0) {
      ++zeros;
    } else {
      atomicAdd(own + (ascending(key) >> kFirstShift) * kCopies, 1U);
    }
  });
  zeros = __reduce_add_sync(kAllLanes, zeros);
  if (threadIdx.x % kWarp == 0 && zeros > 0) atomicAdd(own + (kAscendingZero >> kFirstShift) * kCopies, zeros);
  if (range != nullptr) widen(range, low, high);
  __syncthreads();
  for (unsigned b = threadIdx.x; b < kFirstBins; b += blockDim.x) {
    std::uint32_t sum = 0;
    for (unsigned copy = 0; copy < kCopies; ++copy) sum += bins[b * kCopies + copy];
    if (sum != 0) atomicAdd(selection->bins + b, static_cast<Count>(sum));
  }
}

// Histograms of groups [first, first + kGroups), over the 10 bits from `shift` on of the keys with the group's prefix.
template <KeyOf kOf>
__global__ void __launch_bounds__(kThreads)
    next_histogram_kernel(const float* __restrict__ x, std::size_t n, Selection* selection, unsigned first, unsigned shift) {
  __shared__ std::uint32_t bins[kGroups * kNextBins];
  __shared__ std::uint32_t prefixes[kGroups];
  if (first >= selection->groups) return;
  const unsigned groups = min(kGroups, selection->groups - first);
  if (threadIdx.x < kGroups) prefixes[threadIdx.x] = threadIdx.x < groups ? selection->group_prefix[first + threadIdx.x] : ~0U;
  for (unsigned b = threadIdx.x; b < kGroups * kNextBins; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  std::uint32_t wanted[kGroups];
  for (unsigned g = 0; g < kGroups; ++g) wanted[g] = prefixes[g];
  std::uint32_t zeros = 0;
  for_values(x, n, [&](float v) {
    const std::uint32_t key = ascending(key_of<kOf>(v));
    if (key == kAscendingZero) {
      ++zeros;
      return;
    }
    const std::uint32_t prefix = key >> (shift + kNextBits);
    unsigned found = kGroups;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) found = prefix == wanted[g] ? g : found;
    if (found < kGroups) atomicAdd(bins + found * kNextBins + ((key >> shift) & (kNextBins - 1)), 1U);
  });
  zeros = __reduce_add_sync(kAllLanes, zeros);
  for (unsigned g = 0; g < groups && threadIdx.x % kWarp == 0 && zeros > 0; ++g) {
    if (kAscendingZero >> (shift + kNextBits) == wanted[g]) {
      atomicAdd(bins + g * kNextBins + ((kAscendingZero >> shift) & (kNextBins - 1)), zeros);
    }
  }
  __syncthreads();
  for (unsigned b = threadIdx.x; b < groups * kNextBins; b += blockDim.x) {
    if (bins[b] != 0) atomicAdd(selection->bins + first * kNextBins + b, static_cast<Count>(bins[b]));
  }
}

// Which bin each rank of a group lies in; the bins become the upper bits of its key. One block of 1024 threads.
template <unsigned kBins>
__device__ void look_up(Selection* selection, unsigned group, unsigned ranks, Count* sums, Count* room) {
  constexpr unsigned kPerThread = kBins / 1024;
  Count own[kPerThread];
  Count sum = 0;
  for (unsigned i = 0; i < kPerThread; ++i) {
    own[i] = selection->bins[group * kBins + kPerThread * threadIdx.x + i];
    sum += own[i];
  }
  Count total;
  Count before = block_sum_before(sum, room, &total);
  for (unsigned i = 0; i < kPerThread; ++i) {
    sums[kPerThread * threadIdx.x + i] = before;
    before += own[i];
  }
  __syncthreads();
  if (threadIdx.x < ranks && selection->group[threadIdx.x] == group) {
    const Count rank = selection->rank[threadIdx.x];
    unsigned found = 0;
    for (unsigned bit = kBins / 2; bit > 0; bit /= 2) {
      if (sums[found + bit] <= rank) found += bit;
    }
    selection->prefix[threadIdx.x] = selection->prefix[threadIdx.x] * kBins + found;
    selection->rank[threadIdx.x] = rank - sums[found];
  }
  __syncthreads();
}

// After a pass: the next prefixes and groups of equal ones, and empty bins. After the last one: the answers.
template <unsigned kBins>
__global__ void __launch_bounds__(1024) look_up_kernel(Selection* selection, unsigned ranks, Key* answers) {
  __shared__ Count sums[kBins];
  __shared__ Count room[kWarp + 1];
  const unsigned groups = selection->groups;
  for (unsigned g = 0; g < groups; ++g) look_up<kBins>(selection, g, ranks, sums, room);
  if (answers != nullptr) {
    if (threadIdx.x < ranks) answers[threadIdx.x] = static_cast<Key>(selection->prefix[threadIdx.x] ^ 0x80000000U);
    return;
  }
  for (unsigned b = threadIdx.x; b < groups * kBins; b += blockDim.x) selection->bins[b] = 0;
  if (threadIdx.x != 0) return;
  selection->groups = 0;
  for (unsigned r = 0; r < ranks; ++r) {
    if (r == 0 || selection->prefix[r] != selection->prefix[r - 1]) selection->group_prefix[selection->groups++] = selection->prefix[r];
    selection->group[r] = selection->groups - 1;
  }
}

struct Ranks {
  Count rank[kMaxRanks];
};

__global__ void start_kernel(Selection* selection, Ranks ranks) {
  for (unsigned b = blockIdx.x * blockDim.x + threadIdx.x; b < kMaxRanks * kNextBins; b += gridDim.x * blockDim.x) selection->bins[b] = 0;
  if (blockIdx.x != 0 || threadIdx.x >= kMaxRanks) return;
  selection->prefix[threadIdx.x] = 0;
  selection->rank[threadIdx.x] = ranks.rank[threadIdx.x];
  selection->group[threadIdx.x] = 0;
  selection->groups = 1;
}

template <KeyOf kOf>
void select(const float* x, std::size_t n, std::span<const std::uint64_t> host_ranks, Key* answers, KeyRange* range, Selection* room,
            Stream stream) {
  Ranks ranks{};
  std::copy(host_ranks.begin(), host_ranks.end(), ranks.rank);
  const auto count = static_cast<unsigned>(host_ranks.size());
  const unsigned grid = std::min(grid_for(n, 16 * kThreads), 132U * 4);
  start_kernel<<<32, 256, 0, stream>>>(room, ranks);
  if (range != nullptr) start_range_kernel<<<1, 1, 0, stream>>>(range);
  check(cudaFuncSetAttribute(first_histogram_kernel<kOf>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kFirstRoom)),
        "shared memory of the histogram");
  first_histogram_kernel<kOf><<<std::min(grid, 132U * 3), kThreads, kFirstRoom, stream>>>(x, n, room, range);
  look_up_kernel<kFirstBins><<<1, 1024, 0, stream>>>(room, count, nullptr);
  for (const unsigned shift : {kNextBits, 0U}) {
    for (unsigned first = 0; first < count; first += kGroups) {
      next_histogram_kernel<kOf><<<grid, kThreads, 0, stream>>>(x, n, room, first, shift);
    }
    look_up_kernel<kNextBins><<<1, 1024, 0, stream>>>(room, count, shift == 0 ? answers : nullptr);
  }
  check_launch("select_keys");
}

// ---- many ranks ----

template <KeyOf kOf>
__global__ void keys_kernel(const float* __restrict__ x, std::size_t n, Key* keys) {
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    keys[i] = key_of<kOf>(x[i]);
  }
}

__global__ void pick_kernel(const Key* sorted, const std::uint64_t* ranks, std::size_t count, Key* answers) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) answers[i] = sorted[ranks[i]];
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t sort_bytes(std::size_t n) {
  std::size_t bytes = 0;
  check(cub::DeviceRadixSort::SortKeys(nullptr, bytes, static_cast<const Key*>(nullptr), static_cast<Key*>(nullptr), n), "sort");
  return bytes;
}

template <KeyOf kOf>
void select_sorted(const float* x, std::size_t n, std::span<const std::uint64_t> host_ranks, Key* answers, std::byte* room, Stream stream) {
  auto* const keys = reinterpret_cast<Key*>(room);
  auto* const sorted = reinterpret_cast<Key*>(room + aligned(4 * n));
  auto* const ranks = reinterpret_cast<std::uint64_t*>(room + 2 * aligned(4 * n));
  std::byte* const rest = room + 2 * aligned(4 * n) + aligned(8 * host_ranks.size());
  std::size_t bytes = sort_bytes(n);
  keys_kernel<kOf><<<grid_for(n, 1024), 256, 0, stream>>>(x, n, keys);
  check(cub::DeviceRadixSort::SortKeys(rest, bytes, keys, sorted, n, 0, 32, stream), "sort");
  check(cudaMemcpyAsync(ranks, host_ranks.data(), 8 * host_ranks.size(), cudaMemcpyHostToDevice, stream), "copy of the ranks");
  const auto count = static_cast<unsigned>(host_ranks.size());
  pick_kernel<<<(count + 255) / 256, 256, 0, stream>>>(sorted, ranks, count, answers);
  check_launch("select_sorted");
}

__global__ void sample_kernel(const float* __restrict__ x, std::uint64_t n, float* samples, std::uint64_t m) {
  const std::uint64_t j = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= m) return;
  const std::uint64_t begin = j * n / m;
  const std::uint64_t end = (j + 1) * n / m;
  const std::uint64_t scrambled = (j + 1) * 0x9e3779b97f4a7c15ULL >> 32;
  samples[j] = x[begin + (scrambled * (end - begin) >> 32)];
}

}  // namespace

void key_range(const float* x, std::size_t n, KeyOf of, KeyRange* range, Stream stream) {
  start_range_kernel<<<1, 1, 0, stream>>>(range);
  const unsigned grid = grid_for(n, 16 * 256);
  if (of == KeyOf::kValue) {
    range_kernel<KeyOf::kValue><<<grid, 256, 0, stream>>>(x, n, range);
  } else {
    range_kernel<KeyOf::kMagnitude><<<grid, 256, 0, stream>>>(x, n, range);
  }
  check_launch("key_range");
}

std::size_t select_room(std::size_t n, std::size_t ranks) {
  return ranks <= kMaxRanks ? sizeof(Selection) : 2 * aligned(4 * n) + aligned(8 * ranks) + sort_bytes(n);
}

void select_keys(const float* x, std::size_t n, KeyOf of, std::span<const std::uint64_t> host_ranks, Key* answers, KeyRange* range,
                 void* room, Stream stream) {
  const bool few = host_ranks.size() <= kMaxRanks;
  if (!few && range != nullptr) key_range(x, n, of, range, stream);
  if (of == KeyOf::kValue) {
    few ? select<KeyOf::kValue>(x, n, host_ranks, answers, range, static_cast<Selection*>(room), stream)
        : select_sorted<KeyOf::kValue>(x, n, host_ranks, answers, static_cast<std::byte*>(room), stream);
  } else {
    few ? select<KeyOf::kMagnitude>(x, n, host_ranks, answers, range, static_cast<Selection*>(room), stream)
        : select_sorted<KeyOf::kMagnitude>(x, n, host_ranks, answers, static_cast<std::byte*>(room), stream);
  }
}

void sample_values(const float* x, std::size_t n, float* samples, std::size_t m, Stream stream) {
  sample_kernel<<<static_cast<unsigned>((m + 255) / 256), 256, 0, stream>>>(x, n, samples, m);
  check_launch("sample_values");
}

}  // namespace epipe::kernels::cuda
