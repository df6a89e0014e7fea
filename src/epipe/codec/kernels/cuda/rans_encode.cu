#include "epipe/codec/kernels/cuda/rans.h"

#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kChunksPerBlock = 4;  // one warp each

__device__ std::uint64_t own_chunk() { return static_cast<std::uint64_t>(blockIdx.x) * kChunksPerBlock + threadIdx.x / kWarp; }
__device__ unsigned lane_index() { return threadIdx.x % kWarp; }
constexpr unsigned kBatchSteps = 8;  // whose loads are on their way together

// Walks through the symbols of a chunk from the last to the first, `lanes` at a time, plane after plane. Without branches, so that the
// loads of several steps overlap.
struct BackwardSteps {
  int plane;  // below 0 when there is nothing left
  int step;   // in the plane
  int steps;  // of a full plane
  unsigned stride, units, lanes;

  __device__ BackwardSteps(const Layout& layout, const DeviceChunk& chunk, unsigned own_lanes)
      : plane(static_cast<int>(chunk.planes(layout)) - 1),
        stride(static_cast<unsigned>(layout.blocks ? chunk.units : layout.row)),
        units(static_cast<unsigned>(chunk.symbols(layout))),
        lanes(own_lanes) {
    steps = static_cast<int>((stride + lanes - 1) / lanes);
    step = steps - 1;
  }
  __device__ bool over() const { return plane < 0; }
  __device__ void advance() {
    const bool next_plane = step == 0;
    step = next_plane ? steps - 1 : step - 1;
    plane -= next_plane ? 1 : 0;
  }
  // The lane's symbol in the chunk, and whether there is one.
  __device__ bool symbol(unsigned lane, unsigned* at) const {
    const unsigned i = static_cast<unsigned>(step) * lanes + lane;
    *at = static_cast<unsigned>(plane) * stride + i;
    return plane >= 0 && lane < lanes && i < stride && *at < units;
  }
};

// Tokens, levels and slots of the lane's symbols in some steps.
struct EncodeBatch {
  std::uint8_t token[kBatchSteps];
  std::uint8_t level[kBatchSteps];
  std::uint16_t slot[kBatchSteps];
  bool exists[kBatchSteps];

  __device__ void fill(BackwardSteps& steps, const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels,
                       const Layout& layout, const Coding& coding, unsigned lane) {
#pragma unroll
    for (unsigned k = 0; k < kBatchSteps; ++k) {
      unsigned at;
      exists[k] = steps.symbol(lane, &at);
      at = exists[k] ? at : 0;
      token[k] = tokens[at];
      level[k] = levels[at];
      slot[k] = __ldg(coding.slot_of_plane + (layout.blocks && steps.plane >= 0 ? steps.plane : 0));
      steps.advance();
    }
  }
  // What their encoding takes; a frequency of 0 where there is no symbol.
  __device__ void entries(const Coding& coding, const EncodeEntry* __restrict__ all, EncodeEntry (&out)[kBatchSteps]) const {
    unsigned table[kBatchSteps];
#pragma unroll
    for (unsigned k = 0; k < kBatchSteps; ++k) table[k] = __ldg(coding.table_of + slot[k] + level[k]);
#pragma unroll
    for (unsigned k = 0; k < kBatchSteps; ++k) {
      const uint2 entry = __ldg(reinterpret_cast<const uint2*>(all) + table[k] * kTokenRoom + token[k]);
      out[k] = {exists[k] ? entry.x : 0, entry.y};
    }
  }
};

__device__ std::uint32_t divide(std::uint32_t x, std::uint32_t frequency, std::uint32_t factor) {
  const int bits = 32 - __clz(static_cast<int>(frequency - 1));
  const std::uint32_t t = __umulhi(x, factor);
  return (t + ((x - t) >> min(bits, 1))) >> max(bits - 1, 0);
}

// Tokens and levels of the next batch are on their way while the states take in this one.
__global__ void __launch_bounds__(kWarp* kChunksPerBlock)
    encode_kernel(const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels, Layout layout, Coding coding,
                  const EncodeEntry* __restrict__ entries, std::byte* __restrict__ room, std::uint32_t* __restrict__ states,
                  std::uint32_t* __restrict__ word_counts) {
  const std::uint64_t c = own_chunk();
  if (c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  const std::uint64_t share = words_room(layout.chunk_units * layout.symbols);
  auto* out = reinterpret_cast<std::uint16_t*>(room + (c + 1) * share);
  const unsigned lane = lane_index();
  const unsigned below = (1U << lane) - 1;
  BackwardSteps steps(layout, chunk, coding.lanes);
  std::uint32_t x = kLowestState;
  std::uint32_t words = 0;
  EncodeBatch next;
  bool more = true;
  next.fill(steps, tokens + chunk.begin, levels + chunk.begin, layout, coding, lane);
  while (more) {
    EncodeEntry batch[kBatchSteps];
    next.entries(coding, entries, batch);
    more = !steps.over();
    if (more) next.fill(steps, tokens + chunk.begin, levels + chunk.begin, layout, coding, lane);
#pragma unroll
    for (unsigned k = 0; k < kBatchSteps; ++k) {
      const std::uint32_t frequency = batch[k].frequency_and_start >> 16;
      const bool full = frequency != 0 && x >> 20 >= frequency;
      const unsigned writers = __ballot_sync(kAllLanes, full);
      const int count = __popc(writers);
      out -= count;
      words += static_cast<std::uint32_t>(count);
      if (full) {
        out[__popc(writers & below)] = static_cast<std::uint16_t>(x);
        x >>= 16;
      }
      if (frequency != 0) {
        const std::uint32_t quotient = divide(x, frequency, batch[k].factor);
        x = (quotient << kProbabilityBits) + (x - quotient * frequency) + (batch[k].frequency_and_start & 0xffff);
      }
    }
  }
  states[c * kMaxStates + lane] = x;
  if (lane == 0) word_counts[c] = words;
}

__global__ void __launch_bounds__(256) gather_words_kernel(const std::byte* __restrict__ room, const std::uint32_t* __restrict__ states,
                                                           const std::uint32_t* __restrict__ word_counts, Layout layout, unsigned lanes,
                                                           const std::uint64_t* __restrict__ offsets, std::byte* __restrict__ out) {
  const std::uint64_t c = blockIdx.x;
  const std::uint64_t share = words_room(layout.chunk_units * layout.symbols);
  const std::uint32_t count = word_counts[c];
  const auto* const from = reinterpret_cast<const std::uint16_t*>(room + (c + 1) * share) - count;
  const auto* const own_states = reinterpret_cast<const std::uint16_t*>(states + c * kMaxStates);
  auto* const to = reinterpret_cast<std::uint16_t*>(out + offsets[c]);
  for (unsigned i = threadIdx.x; i < 2 * lanes; i += blockDim.x) to[i] = own_states[i];
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) to[2 * lanes + i] = from[i];
}

__global__ void __launch_bounds__(128)
    gather_raw_kernel(const std::uint32_t* __restrict__ words, const std::uint64_t* __restrict__ first_word,
                      const std::uint32_t* __restrict__ sizes, const std::uint64_t* __restrict__ offsets, std::byte* __restrict__ out) {
  const auto* const from = reinterpret_cast<const std::byte*>(words + first_word[blockIdx.x]);
  for (std::uint32_t i = threadIdx.x; i < sizes[blockIdx.x]; i += blockDim.x) out[offsets[blockIdx.x] + i] = from[i];
}

unsigned blocks_for(const Layout& layout) { return static_cast<unsigned>((layout.chunks + kChunksPerBlock - 1) / kChunksPerBlock); }

}  // namespace

void encode_chunks(const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout, const Coding& coding,
                   const EncodeEntry* entries, std::byte* room, std::uint32_t* states, std::uint32_t* word_counts, Stream stream) {
  encode_kernel<<<blocks_for(layout), kWarp * kChunksPerBlock, 0, stream>>>(tokens, levels, layout, coding, entries, room, states,
                                                                            word_counts);
  check_launch("encode_chunks");
}

void gather_words(const std::byte* room, const std::uint32_t* states, const std::uint32_t* word_counts, const Layout& layout,
                  unsigned lanes, const std::uint64_t* offsets, std::byte* out, Stream stream) {
  gather_words_kernel<<<static_cast<unsigned>(layout.chunks), 256, 0, stream>>>(room, states, word_counts, layout, lanes, offsets, out);
  check_launch("gather_words");
}

void gather_raw(const std::uint32_t* words, const std::uint64_t* first_word, const std::uint32_t* sizes, const std::uint64_t* offsets,
                std::size_t chunks, std::byte* out, Stream stream) {
  gather_raw_kernel<<<static_cast<unsigned>(chunks), 128, 0, stream>>>(words, first_word, sizes, offsets, out);
  check_launch("gather_raw");
}

}  // namespace epipe::kernels::cuda
