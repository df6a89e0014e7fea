#include "epipe/codec/kernels/cuda/compact.h"

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kPerThread = kCompactTile / kThreads;
static_assert(kPerThread == 16);

struct Share {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
};

// Of the consecutive values that this thread has.
__device__ Share share_of(const float* __restrict__ x, std::size_t n, std::size_t first, Key threshold) {
  Share share;
  for (std::size_t i = first; i < min(first + kPerThread, n); ++i) {
    const Key key = magnitude_key(x[i]);
    share.above += key > threshold ? 1 : 0;
    share.equal += key == threshold && key != 0 ? 1 : 0;
  }
  return share;
}

__device__ std::size_t first_value() { return static_cast<std::size_t>(blockIdx.x) * kCompactTile + threadIdx.x * kPerThread; }

__global__ void __launch_bounds__(kThreads)
    count_kernel(const float* __restrict__ x, std::size_t n, const Key* threshold, TileCounts counts) {
  __shared__ std::uint32_t room[kWarp + 1];
  const Share own = share_of(x, n, first_value(), *threshold);
  std::uint32_t above;
  std::uint32_t equal;
  block_sum_before(own.above, room, &above);
  block_sum_before(own.equal, room, &equal);
  if (threadIdx.x == 0) {
    counts.above[blockIdx.x] = above;
    counts.equal[blockIdx.x] = equal;
  }
}

// In place: the sums in front of every tile; the total behind the last. One block.
__device__ std::uint32_t sum_tiles(std::uint32_t* counts, std::size_t tiles) {
  __shared__ std::uint32_t room[kWarp + 1];
  std::uint32_t running = 0;
  for (std::size_t base = 0; base < tiles; base += blockDim.x) {
    const std::size_t i = base + threadIdx.x;
    const std::uint32_t own = i < tiles ? counts[i] : 0;
    std::uint32_t total;
    const std::uint32_t before = block_sum_before(own, room, &total);
    if (i < tiles) counts[i] = running + before;
    running += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[tiles] = running;
  __syncthreads();
  return running;
}

__global__ void __launch_bounds__(1024) kept_kernel(TileCounts counts, std::size_t tiles, std::uint32_t most) {
  const std::uint32_t above = sum_tiles(counts.above, tiles);
  sum_tiles(counts.equal, tiles);
  const std::uint32_t ties = most - min(above, most);
  for (std::size_t i = threadIdx.x; i <= tiles; i += blockDim.x) counts.kept[i] = counts.above[i] + min(counts.equal[i], ties);
}

__global__ void __launch_bounds__(kThreads)
    write_kernel(const float* __restrict__ x, std::size_t n, const Key* threshold, std::uint32_t most, TileCounts counts, std::size_t tiles,
                 std::uint32_t* __restrict__ positions, float* __restrict__ values) {
  __shared__ std::uint32_t room[kWarp + 1];
  const Key limit = *threshold;
  const std::size_t first = first_value();
  const Share own = share_of(x, n, first, limit);
  std::uint32_t total;
  const std::uint32_t above_before = counts.above[blockIdx.x] + block_sum_before(own.above, room, &total);
  std::uint32_t equal_before = counts.equal[blockIdx.x] + block_sum_before(own.equal, room, &total);
  const std::uint32_t ties = most - min(counts.above[tiles], most);
  std::uint32_t at = above_before + min(equal_before, ties);
  for (std::size_t i = first; i < min(first + kPerThread, n); ++i) {
    const Key key = magnitude_key(x[i]);
    const bool tie = key == limit && key != 0;
    if (key > limit || (tie && equal_before < ties)) {
      positions[at] = static_cast<std::uint32_t>(i);
      values[at++] = x[i];
    }
    equal_before += tie ? 1 : 0;
  }
}

__device__ std::size_t index() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// One word of fields per thread.
__global__ void pack_kernel(const std::uint32_t* __restrict__ fields, std::size_t count, unsigned bits, std::uint32_t* out,
                            std::size_t words) {
  const std::size_t w = index();
  if (w >= words) return;
  std::size_t at = 32 * w / bits;
  unsigned filled = bits - 32 * w % bits;
  std::uint32_t word = fields[at] >> (32 * w % bits);
  for (++at; filled < 32 && at < count; filled += bits, ++at) word |= fields[at] << filled;
  out[w] = word;
}

__device__ std::uint32_t field(const std::uint32_t* __restrict__ in, std::size_t i, unsigned bits) {
  const std::size_t bit = i * bits;
  const std::uint32_t low = in[bit / 32];
  const std::uint32_t high = bit % 32 + bits > 32 ? in[bit / 32 + 1] : 0;
  return __funnelshift_r(low, high, bit % 32) & (bits == 32 ? ~0U : (1U << bits) - 1);
}

__global__ void set_bits_kernel(const std::uint32_t* __restrict__ positions, std::size_t count, std::uint32_t* bitmap) {
  if (index() < count) atomicOr(bitmap + positions[index()] / 32, 1U << positions[index()] % 32);
}

__global__ void scatter_packed_kernel(const std::uint32_t* __restrict__ in, std::size_t count, unsigned bits,
                                      const float* __restrict__ values, std::size_t n, float* out, std::uint32_t* wrong) {
  const std::size_t i = index();
  if (i >= count) return;
  const std::uint32_t position = field(in, i, bits);
  if (position >= n || (i > 0 && field(in, i - 1, bits) >= position)) {
    *wrong = 1;
  } else {
    out[position] = values[i];
  }
}

constexpr unsigned kTileWords = kCompactTile / 32;

// One block of kTileWords threads per tile, a word each.
__global__ void __launch_bounds__(kTileWords)
    count_bits_kernel(const std::uint32_t* __restrict__ bitmap, std::size_t words, std::uint32_t* counts) {
  __shared__ std::uint32_t room[kWarp + 1];
  const std::size_t w = index();
  std::uint32_t total;
  block_sum_before<std::uint32_t>(w < words ? __popc(bitmap[w]) : 0, room, &total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

__global__ void __launch_bounds__(1024) sum_bits_kernel(std::uint32_t* counts, std::size_t tiles, std::size_t count, std::uint32_t* wrong) {
  if (sum_tiles(counts, tiles) != count && threadIdx.x == 0) *wrong = 1;
}

__global__ void __launch_bounds__(kTileWords)
    scatter_bitmap_kernel(const std::uint32_t* __restrict__ bitmap, std::size_t words, std::size_t count, const float* __restrict__ values,
                          std::size_t n, float* out, const std::uint32_t* counts, std::uint32_t* wrong) {
  __shared__ std::uint32_t room[kWarp + 1];
  const std::size_t w = index();
  std::uint32_t bits = w < words ? bitmap[w] : 0;
  std::uint32_t total;
  std::size_t at = counts[blockIdx.x] + block_sum_before<std::uint32_t>(__popc(bits), room, &total);
  for (; bits != 0; bits &= bits - 1, ++at) {
    const std::size_t position = 32 * w + static_cast<std::size_t>(__ffs(static_cast<int>(bits)) - 1);
    if (position >= n || at >= count) {
      *wrong = 1;
      return;
    }
    out[position] = values[at];
  }
}

unsigned blocks(std::size_t work, unsigned threads) {
  return static_cast<unsigned>(std::max<std::size_t>(1, (work + threads - 1) / threads));
}

}  // namespace

void count_kept(const float* x, std::size_t n, const Key* threshold, std::uint32_t most, const TileCounts& counts, Stream stream) {
  const std::size_t tiles = compact_tiles(n);
  count_kernel<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(x, n, threshold, counts);
  kept_kernel<<<1, 1024, 0, stream>>>(counts, tiles, most);
  check_launch("count_kept");
}

void write_kept(const float* x, std::size_t n, const Key* threshold, std::uint32_t most, const TileCounts& counts, std::uint32_t* positions,
                float* values, Stream stream) {
  const std::size_t tiles = compact_tiles(n);
  write_kernel<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(x, n, threshold, most, counts, tiles, positions, values);
  check_launch("write_kept");
}

void pack_positions(const std::uint32_t* positions, std::size_t count, unsigned bits, std::uint32_t* out, Stream stream) {
  if (count == 0) return;
  const std::size_t words = (count * bits + 31) / 32;
  pack_kernel<<<blocks(words, 256), 256, 0, stream>>>(positions, count, bits, out, words);
  check_launch("pack_positions");
}

void set_bits(const std::uint32_t* positions, std::size_t count, std::uint32_t* bitmap, Stream stream) {
  set_bits_kernel<<<blocks(count, 256), 256, 0, stream>>>(positions, count, bitmap);
  check_launch("set_bits");
}

void scatter_packed(const std::uint32_t* in, std::size_t count, unsigned bits, const float* values, std::size_t n, float* out,
                    std::uint32_t* wrong, Stream stream) {
  check(cudaMemsetAsync(out, 0, 4 * n, stream), "clearing of the tensor");
  scatter_packed_kernel<<<blocks(count, 256), 256, 0, stream>>>(in, count, bits, values, n, out, wrong);
  check_launch("scatter_packed");
}

void scatter_bitmap(const std::uint32_t* bitmap, std::size_t count, const float* values, std::size_t n, float* out, std::uint32_t* counts,
                    std::uint32_t* wrong, Stream stream) {
  const std::size_t words = (n + 31) / 32;
  const std::size_t tiles = compact_tiles(n);
  check(cudaMemsetAsync(out, 0, 4 * n, stream), "clearing of the tensor");
  count_bits_kernel<<<static_cast<unsigned>(tiles), kTileWords, 0, stream>>>(bitmap, words, counts);
  sum_bits_kernel<<<1, 1024, 0, stream>>>(counts, tiles, count, wrong);
  scatter_bitmap_kernel<<<static_cast<unsigned>(tiles), kTileWords, 0, stream>>>(bitmap, words, count, values, n, out, counts, wrong);
  check_launch("scatter_bitmap");
}

}  // namespace epipe::kernels::cuda
