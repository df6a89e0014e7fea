#include "epipe/codec/kernels/cuda/tokens.h"

#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kLanesOfSums = 16;

__device__ std::size_t thread_index() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::size_t thread_stride() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// 16 threads per block of values: thread j sums every sixteenth; what is left over at the end of the tensor goes to the first.
__global__ void sum_kernel(const float* __restrict__ x, std::size_t n, BlockSums* sums, std::size_t blocks, Key* largest) {
  const std::size_t block = thread_index() / kLanesOfSums;
  const unsigned j = threadIdx.x % kLanesOfSums;
  const unsigned group = 0xffffU << (threadIdx.x % kWarp / kLanesOfSums * kLanesOfSums);
  if (block >= blocks) return;
  const std::size_t begin = block * kSumBlock;
  const std::size_t length = min(kSumBlock, n - begin);
  const std::size_t even = length / kLanesOfSums * kLanesOfSums;
  double sum = 0;
  std::uint32_t nonzero = 0;
  Key high = 0;
  const auto add = [&](float v) {
    sum += static_cast<double>(v) * v;
    nonzero += v != 0 ? 1U : 0U;
    high = max(high, magnitude_key(v));
  };
  constexpr std::size_t kAhead = 16;  // loads that are on their way together: a block has few threads
  std::size_t i = j;
  for (; i + (kAhead - 1) * kLanesOfSums < even; i += kAhead * kLanesOfSums) {
    float values[kAhead];
#pragma unroll
    for (std::size_t k = 0; k < kAhead; ++k) values[k] = x[begin + i + k * kLanesOfSums];
#pragma unroll
    for (std::size_t k = 0; k < kAhead; ++k) add(values[k]);
  }
  for (; i < even; i += kLanesOfSums) add(x[begin + i]);
  for (i = even; j == 0 && i < length; ++i) add(x[begin + i]);
  nonzero = __reduce_add_sync(group, nonzero);
  double energy = 0;
  for (unsigned k = 0; k < kLanesOfSums; ++k) energy += __shfl_sync(group, sum, static_cast<int>(k), kLanesOfSums);
  high = __reduce_max_sync(group, high);
  if (j == 0) {
    sums[block] = {energy, nonzero};
    atomicMax(largest, high);
  }
}

// A warp adds the raw bits of its escapes to their chunk's together where it lies in one chunk.
__device__ void add_raw_bits(std::uint32_t bits, std::uint64_t chunk, std::uint32_t* raw) {
  if (__all_sync(kAllLanes, bits == 0)) return;
  if (__all_sync(kAllLanes, chunk == __shfl_sync(kAllLanes, chunk, 0))) {
    bits = __reduce_add_sync(kAllLanes, bits);
    if (threadIdx.x % kWarp == 0) atomicAdd(raw + chunk, bits);
  } else if (bits != 0) {
    atomicAdd(raw + chunk, bits);
  }
}

__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const float* __restrict__ y, std::size_t n, DeadZone zone, std::uint64_t chunk_symbols,
                    std::uint8_t* __restrict__ tokens, std::uint32_t* raw) {
  const auto token = [&](float v) { return device_token_of(device_level_of(v, zone), v < 0); };
  const auto bits_of = [](std::uint8_t t) { return t >= kFirstEscape ? raw_bits(t) : 0U; };
  const std::size_t rounds = (n / 4 + thread_stride() - 1) / thread_stride();
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t i = round * thread_stride() + thread_index();
    std::uint32_t bits = 0;
    std::uint64_t chunk = 4 * i / chunk_symbols;
    if (i < n / 4) {
      const float4 v = reinterpret_cast<const float4*>(y)[i];
      const uchar4 t = make_uchar4(token(v.x), token(v.y), token(v.z), token(v.w));
      reinterpret_cast<uchar4*>(tokens)[i] = t;
      if (max(max(t.x, t.y), max(t.z, t.w)) >= kFirstEscape) {
        if ((4 * i + 3) / chunk_symbols == chunk) {
          bits = bits_of(t.x) + bits_of(t.y) + bits_of(t.z) + bits_of(t.w);
        } else {
          const std::uint8_t single[] = {t.x, t.y, t.z, t.w};
          for (unsigned k = 0; k < 4; ++k) atomicAdd(raw + (4 * i + k) / chunk_symbols, bits_of(single[k]));
        }
      }
    }
    add_raw_bits(bits, chunk, raw);
  }
  const std::size_t last = n / 4 * 4 + thread_index();
  if (last >= n) return;
  tokens[last] = token(y[last]);
  atomicAdd(raw + last / chunk_symbols, bits_of(tokens[last]));
}

// Counts of one band in shared memory. Of the lanes of a warp, those that agree with the first count together, because most symbols are
// alike.
struct BandCounts {
  std::uint32_t* bins;  // [levels][kTokenRoom]

  __device__ void clear(unsigned levels) const {
    for (unsigned i = threadIdx.x; i < levels * kTokenRoom; i += blockDim.x) bins[i] = 0;
    __syncthreads();
  }
  __device__ void add(bool active, unsigned level, unsigned token) const {
    const unsigned bin = level * kTokenRoom + token;
    const unsigned lanes = __ballot_sync(kAllLanes, active);
    if (lanes == 0) return;
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    const unsigned leaders_bin = __shfl_sync(kAllLanes, bin, leader);
    const bool agrees = active && bin == leaders_bin;
    const unsigned together = __ballot_sync(kAllLanes, agrees);
    if (static_cast<int>(threadIdx.x % kWarp) == leader) {
      atomicAdd(bins + bin, static_cast<std::uint32_t>(__popc(together)));
    } else if (active && !agrees) {
      atomicAdd(bins + bin, 1U);
    }
  }
  __device__ void flush(unsigned levels, std::uint32_t* counts) const {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < levels * kTokenRoom; i += blockDim.x) {
      if (bins[i] != 0) atomicAdd(counts + i, bins[i]);
    }
  }
};

constexpr unsigned kMostLevels = 16;
constexpr std::uint64_t kMostGroups = 64;  // of columns of a chunk

// Block (p, group): plane p of a group of chunks. Planes of one group run side by side, so that parents come from the cache.
__global__ void __launch_bounds__(kThreads)
    parents_kernel(const std::uint8_t* __restrict__ tokens, Layout layout, const std::uint16_t* __restrict__ slot_of_plane, unsigned group,
                   std::uint8_t* __restrict__ levels, std::uint32_t* counts) {
  __shared__ std::uint32_t bins[8 * kTokenRoom];
  const BandCounts band{bins};
  band.clear(layout.levels);
  const unsigned p = blockIdx.x;
  const Parents parents(layout.width, p);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.y) * group;
  for (std::uint64_t c = first; c < first + group && c < layout.chunks; ++c) {
    const DeviceChunk chunk(layout, c);
    const std::uint8_t* const own = tokens + chunk.begin;
    std::uint8_t* const own_levels = levels + chunk.begin;
    const auto units = static_cast<unsigned>(chunk.units);
    for (unsigned base = 0; base < units; base += blockDim.x) {
      const unsigned i = base + threadIdx.x;
      const bool active = i < units;
      unsigned level = 0;
      unsigned token = 0;
      if (active) {
        level = parents.level([&](unsigned k) -> unsigned { return magnitude_of(own[k * units + i]); });
        token = own[p * units + i];
        own_levels[p * units + i] = static_cast<std::uint8_t>(level);
      }
      band.add(active, level, token);
    }
  }
  band.flush(layout.levels, counts + slot_of_plane[p] * kTokenRoom);
}

// Tokens of a column of a chunk, some rows ahead on their way, so that a row does not wait for memory.
class ColumnOfTokens {
 public:
  static constexpr unsigned kRowsAhead = 8;

  __device__ ColumnOfTokens(const std::uint8_t* tokens, const Layout& layout, const DeviceChunk& chunk, std::uint64_t column)
      : tokens_(tokens + chunk.begin), row_(layout.row), units_(column < layout.row ? chunk.units : 0), column_(column) {
    fetch(0);
  }
  __device__ std::uint64_t place(std::uint64_t r) const { return r * row_ + column_; }
  __device__ bool exists(std::uint64_t r) const { return place(r) < units_; }
  // Of rows r to r + kRowsAhead - 1, in ascending order of r from 0 on.
  __device__ void take(std::uint64_t r, unsigned (&tokens)[kRowsAhead]) {
#pragma unroll
    for (unsigned k = 0; k < kRowsAhead; ++k) tokens[k] = coming_[k];
    fetch(r + kRowsAhead);
  }

 private:
  __device__ void fetch(std::uint64_t r) {
#pragma unroll
    for (unsigned k = 0; k < kRowsAhead; ++k) coming_[k] = exists(r + k) ? tokens_[place(r + k)] : 0;
  }
  const std::uint8_t* tokens_;
  std::uint64_t row_, units_, column_;
  unsigned coming_[kRowsAhead];
};

// Block (c, g): chunk c, a thread per column; there may be more columns than threads in all groups.
__global__ void __launch_bounds__(kThreads)
    running_kernel(const std::uint8_t* __restrict__ tokens, Layout layout, std::uint8_t* __restrict__ levels, std::uint32_t* counts) {
  __shared__ std::uint32_t bins[kMostLevels * kTokenRoom];
  const BandCounts band{bins};
  band.clear(layout.levels);
  const DeviceChunk chunk(layout, blockIdx.x);
  const std::uint64_t rows = chunk.planes(layout);
  for (std::uint64_t base = blockIdx.y * blockDim.x; base < layout.row; base += gridDim.y * blockDim.x) {
    ColumnOfTokens column(tokens, layout, chunk, base + threadIdx.x);
    unsigned mean = 0;
    unsigned before = 0;
    for (std::uint64_t first = 0; first < rows; first += ColumnOfTokens::kRowsAhead) {
      unsigned own[ColumnOfTokens::kRowsAhead];
      column.take(first, own);
#pragma unroll
      for (unsigned k = 0; k < ColumnOfTokens::kRowsAhead; ++k) {
        const std::uint64_t r = first + k;
        const bool active = column.exists(r);
        unsigned level = 0;
        if (r == 1) mean = 128 * before;
        if (r > 0) {
          mean = next_mean(mean, before);
          level = running_level(mean);
        }
        before = magnitude_of(static_cast<std::uint8_t>(own[k]));
        if (active) levels[chunk.begin + column.place(r)] = static_cast<std::uint8_t>(level);
        band.add(active, level, own[k]);
      }
    }
  }
  band.flush(layout.levels, counts);
}

// Rows without memory: every symbol of a chunk by itself.
__global__ void __launch_bounds__(kThreads)
    neighbours_kernel(const std::uint8_t* __restrict__ tokens, Layout layout, std::uint8_t* __restrict__ levels, std::uint32_t* counts) {
  __shared__ std::uint32_t bins[kMostLevels * kTokenRoom];
  const BandCounts band{bins};
  band.clear(layout.levels);
  const DeviceChunk chunk(layout, blockIdx.x);
  const std::uint8_t* const own = tokens + chunk.begin;
  const auto units = static_cast<unsigned>(chunk.units);
  const auto row = static_cast<unsigned>(layout.row);
  for (unsigned base = 0; base < units; base += blockDim.x) {
    const unsigned i = base + threadIdx.x;
    const bool active = i < units;
    unsigned level = 0;
    unsigned token = 0;
    if (active) {
      token = own[i];
      if (layout.context == Context::kNeighbours && i >= row) {
        const unsigned column = i % row;
        const unsigned length = min(row, units - (i - column));
        const std::uint8_t* const before = own + i - row;
        unsigned sum = 2U * magnitude_of(before[0]);
        if (column > 0) sum += magnitude_of(before[-1]);
        if (column + 1 < length) sum += magnitude_of(before[1]);
        level = neighbour_level(sum);
      }
      levels[chunk.begin + i] = static_cast<std::uint8_t>(level);
    }
    band.add(active, level, token);
  }
  band.flush(layout.levels, counts);
}

// One block per chunk; each thread has 16 consecutive symbols of a tile.
constexpr unsigned kRawShare = 16;

__global__ void __launch_bounds__(kThreads)
    write_raw_kernel(const float* __restrict__ y, const std::uint8_t* __restrict__ tokens, Layout layout, DeadZone zone,
                     const std::uint32_t* __restrict__ bits, const std::uint64_t* __restrict__ first_word, std::uint32_t* words) {
  __shared__ std::uint32_t room[kWarp + 1];
  if (bits[blockIdx.x] == 0) return;
  const DeviceChunk chunk(layout, blockIdx.x);
  const auto symbols = static_cast<unsigned>(chunk.symbols(layout));
  std::uint32_t* const out = words + first_word[blockIdx.x];
  std::uint32_t cursor = 0;
  for (unsigned base = 0; base < symbols; base += kThreads * kRawShare) {
    const unsigned begin = base + threadIdx.x * kRawShare;
    std::uint8_t own[kRawShare];
    std::uint32_t width = 0;
#pragma unroll
    for (unsigned k = 0; k < kRawShare; ++k) own[k] = begin + k < symbols ? tokens[chunk.begin + begin + k] : 0;
#pragma unroll
    for (unsigned k = 0; k < kRawShare; ++k) width += own[k] >= kFirstEscape ? raw_bits(own[k]) : 0;
    std::uint32_t total;
    std::uint32_t at = cursor + block_sum_before(width, room, &total);
    cursor += total;
#pragma unroll
    for (unsigned k = 0; k < kRawShare; ++k) {
      if (own[k] < kFirstEscape) continue;
      const unsigned count = raw_bits(own[k]);
      const auto level = static_cast<std::uint32_t>(device_level_of(y[chunk.begin + begin + k], zone)) & ((1U << count) - 1);
      const std::uint64_t field = static_cast<std::uint64_t>(level) << (at % 32);
      atomicOr(out + at / 32, static_cast<std::uint32_t>(field));
      if (field >> 32 != 0) atomicOr(out + at / 32 + 1, static_cast<std::uint32_t>(field >> 32));
      at += count;
    }
  }
}

// Block c: chunk c, with all slots in shared memory.
__global__ void __launch_bounds__(kThreads)
    excess_kernel(const float* __restrict__ y, const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels, Layout layout,
                  const std::uint16_t* __restrict__ slot_of_plane, DeadZone zone, unsigned slots, Excess* excess) {
  extern __shared__ unsigned long long sums[];  // [slots][2], then counts
  auto* const counts = reinterpret_cast<unsigned*>(sums + 2 * slots);
  for (unsigned i = threadIdx.x; i < 2 * slots; i += blockDim.x) {
    sums[i] = 0;
    counts[i] = 0;
  }
  __syncthreads();
  const DeviceChunk chunk(layout, blockIdx.x);
  for (std::uint64_t i = threadIdx.x; i < chunk.symbols(layout); i += blockDim.x) {
    const std::uint8_t token = tokens[chunk.begin + i];
    if (token == 0) continue;
    const float v = y[chunk.begin + i];
    const std::int32_t level = token < kFirstEscape ? static_cast<std::int32_t>(magnitude_of(token)) : device_level_of(v, zone);
    const float more = __fsub_rn(static_cast<float>(level), __fmul_rn(fabsf(v), zone.scale));
    const unsigned slot = (layout.blocks ? slot_of_plane[i / chunk.units] : 0U) + levels[chunk.begin + i];
    const unsigned bin = 2 * slot + (level > 1 ? 1U : 0U);
    atomicAdd(sums + bin, static_cast<unsigned long long>(static_cast<long long>(__fmul_rn(more, 0x1p24F))));
    atomicAdd(counts + bin, 1U);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 2 * slots; i += blockDim.x) {
    if (counts[i] == 0) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(&excess[i / 2].sum[i % 2]), sums[i]);
    atomicAdd(reinterpret_cast<unsigned long long*>(&excess[i / 2].count[i % 2]), static_cast<unsigned long long>(counts[i]));
  }
}

__global__ void __launch_bounds__(kThreads)
    errors_kernel(const float* __restrict__ y, const std::uint8_t* __restrict__ levels, Layout layout,
                  const std::uint16_t* __restrict__ slot_of_plane, DeadZone zone, ValueTables tables, double* errors) {
  __shared__ double room[kWarp + 1];
  const DeviceChunk chunk(layout, blockIdx.x);
  const double mean_weight = 1.0 / (layout.mean_gain * layout.mean_gain);
  double sum = 0;
  for (std::uint64_t i = threadIdx.x; i < chunk.symbols(layout); i += blockDim.x) {
    const float v = y[chunk.begin + i];
    const std::int32_t level = device_level_of(v, zone);
    const unsigned slot = (layout.blocks ? slot_of_plane[i / chunk.units] : 0U) + levels[chunk.begin + i];
    const std::int8_t* const shifts = tables.shifts + 2 * tables.table_of[slot];
    const double difference = level == 0 ? v : __fsub_rn(v, device_level_value(level, v < 0, shifts, tables.step));
    const bool mean = layout.blocks ? i < chunk.units : chunk.begin + i < layout.mean_units;
    sum += (mean ? mean_weight : 1.0) * difference * difference;
  }
  double total;
  block_sum_before(sum, room, &total);
  if (threadIdx.x == 0) errors[blockIdx.x] = total;
}

}  // namespace

void sum_blocks(const float* x, std::size_t n, BlockSums* sums, Key* largest, Stream stream) {
  const std::size_t blocks = (n + kSumBlock - 1) / kSumBlock;
  check(cudaMemsetAsync(largest, 0, sizeof(Key), stream), "clearing of the largest key");
  sum_kernel<<<static_cast<unsigned>((blocks * kLanesOfSums + 127) / 128), 128, 0, stream>>>(x, n, sums, blocks, largest);
  check_launch("sum_blocks");
}

void quantize(const float* y, const Layout& layout, const DeadZone& zone, std::uint8_t* tokens, std::uint32_t* raw_bits, Stream stream) {
  const std::size_t n = layout.units * layout.symbols;
  check(cudaMemsetAsync(raw_bits, 0, layout.chunks * sizeof(std::uint32_t), stream), "clearing of the raw bits");
  quantize_kernel<<<grid_for(n, 16 * kThreads), kThreads, 0, stream>>>(y, n, zone, layout.chunk_units * layout.symbols, tokens, raw_bits);
  check_launch("quantize");
}

void find_levels(const std::uint8_t* tokens, const Layout& layout, const std::uint16_t* slot_of_plane, std::uint8_t* levels,
                 std::uint32_t* counts, Stream stream) {
  if (layout.blocks) {
    const auto group = static_cast<unsigned>(std::max<std::uint64_t>(1, layout.chunks / 64));
    const auto groups = static_cast<unsigned>((layout.chunks + group - 1) / group);
    parents_kernel<<<dim3(layout.symbols, groups), kThreads, 0, stream>>>(tokens, layout, slot_of_plane, group, levels, counts);
  } else if (layout.context == Context::kRunning) {
    const auto threads = static_cast<unsigned>(std::min<std::uint64_t>(kThreads, (layout.row + kWarp - 1) / kWarp * kWarp));
    const auto groups = static_cast<unsigned>(std::min((layout.row + threads - 1) / threads, kMostGroups));
    running_kernel<<<dim3(static_cast<unsigned>(layout.chunks), groups), threads, 0, stream>>>(tokens, layout, levels, counts);
  } else {
    neighbours_kernel<<<static_cast<unsigned>(layout.chunks), kThreads, 0, stream>>>(tokens, layout, levels, counts);
  }
  check_launch("find_levels");
}

void write_raw_bits(const float* y, const std::uint8_t* tokens, const Layout& layout, const DeadZone& zone, const std::uint32_t* bits,
                    const std::uint64_t* first_word, std::uint32_t* words, Stream stream) {
  write_raw_kernel<<<static_cast<unsigned>(layout.chunks), kThreads, 0, stream>>>(y, tokens, layout, zone, bits, first_word, words);
  check_launch("write_raw_bits");
}

void add_excess(const float* y, const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout,
                const std::uint16_t* slot_of_plane, const DeadZone& zone, std::size_t slots, Excess* excess, Stream stream) {
  if (slots > kMostSlots) throw std::logic_error("more slots than fit into shared memory");
  const std::size_t room = 2 * slots * (sizeof(unsigned long long) + sizeof(unsigned));
  excess_kernel<<<static_cast<unsigned>(layout.chunks), kThreads, room, stream>>>(y, tokens, levels, layout, slot_of_plane, zone,
                                                                                static_cast<unsigned>(slots), excess);
  check_launch("add_excess");
}

void sum_errors(const float* y, const std::uint8_t* levels, const Layout& layout, const std::uint16_t* slot_of_plane, const DeadZone& zone,
                const ValueTables& tables, double* errors, Stream stream) {
  errors_kernel<<<static_cast<unsigned>(layout.chunks), kThreads, 0, stream>>>(y, levels, layout, slot_of_plane, zone, tables, errors);
  check_launch("sum_errors");
}

}  // namespace epipe::kernels::cuda
