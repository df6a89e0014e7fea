#include "epipe/codec/kernels/cuda/rans.h"

#include "epipe/codec/kernels/cuda/tokens.h"
#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kChunksPerBlock = 4;  // one warp each

__device__ std::uint64_t own_chunk() { return static_cast<std::uint64_t>(blockIdx.x) * kChunksPerBlock + threadIdx.x / kWarp; }
__device__ unsigned lane_index() { return threadIdx.x % kWarp; }

constexpr unsigned kNoToken = kTokenRoom - 1;
static_assert(kNoToken >= kTokens, "its entry leaves a state as it is");

// Tokens and levels of a lane's symbols in some steps of a plane, the last one first; their loads are on their way together.
template <unsigned kSteps>
struct EncodeBatch {
  unsigned token[kSteps];  // kNoToken where there is no symbol
  unsigned level[kSteps];
  unsigned slot;  // the first one of the plane

  // What their encoding takes. The index is in shared memory.
  __device__ void entries(const EncodeIndex& index, EncodeEntry (&out)[kSteps]) const {
    unsigned table[kSteps];
#pragma unroll
    for (unsigned k = 0; k < kSteps; ++k) table[k] = index.table_of[slot + level[k]];
#pragma unroll
    for (unsigned k = 0; k < kSteps; ++k) {
      const uint2 entry = reinterpret_cast<const uint2*>(index.entries)[table[k] * kTokenRoom + token[k]];
      out[k] = {entry.x, entry.y};
    }
  }
};

// Walks through a lane's symbols of a chunk from the last to the first, every `lanes`-th of a plane, plane after plane and kSteps at a
// time. What a warp's time goes to are its instructions, so that as little as can be is done for each step.
template <bool kAllStates, unsigned kSteps>
class BackwardBatches {
 public:
  __device__ BackwardBatches(const Layout& layout, const DeviceChunk& chunk, const std::uint16_t* slot_of_plane, unsigned lanes,
                             unsigned lane)
      : slots_(layout.blocks ? slot_of_plane : nullptr),
        stride_(static_cast<int>(layout.blocks ? chunk.units : layout.row)),
        symbols_(static_cast<int>(chunk.symbols(layout))),
        lanes_(kAllStates ? kWarp : static_cast<int>(lanes)),
        lane_(static_cast<int>(lane)),
        plane_(static_cast<int>(chunk.planes(layout))) {
    enter_plane_before();
  }
  __device__ bool over() const { return plane_ < 0; }

  __device__ void take(const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels, EncodeBatch<kSteps>& batch) {
    const int last = (batch_ * kOwnSteps + kOwnSteps - 1) * lanes_ + lane_;  // in the plane
    const int first = plane_ * stride_ + last;
#pragma unroll
    for (int k = 0; k < kOwnSteps; ++k) {
      const bool exists = last - k * lanes_ < length_ && (kAllStates || lane_ < lanes_);
      batch.token[k] = exists ? tokens[first - k * lanes_] : kNoToken;
      batch.level[k] = exists ? levels[first - k * lanes_] : 0;
    }
    batch.slot = slot_;
    if (--batch_ < 0) enter_plane_before();
  }

 private:
  static constexpr int kOwnSteps = kSteps;

  __device__ void enter_plane_before() {
    --plane_;
    if (plane_ < 0) return;
    length_ = min(stride_, symbols_ - plane_ * stride_);
    batch_ = (length_ - 1) / (kOwnSteps * lanes_);
    slot_ = slots_ != nullptr ? __ldg(slots_ + plane_) : 0;
  }

  const std::uint16_t* slots_;
  int stride_, symbols_, lanes_, lane_;
  int plane_;           // below 0 when there is nothing left
  int length_, batch_;  // of the plane, in the plane
  unsigned slot_;
};

constexpr unsigned kEntryBytes = kTokenRoom * sizeof(EncodeEntry);  // of a table
unsigned shared_bytes(const EncodeIndex& index) { return index.tables * kEntryBytes + index.slots; }

// By all threads of a block.
__device__ EncodeIndex in_shared_memory(const EncodeIndex& index, uint4* shared) {
  const unsigned packs = index.tables * kEntryBytes / sizeof(uint4);
  const auto* const from = reinterpret_cast<const uint4*>(index.entries);
  auto* const table_of = reinterpret_cast<std::uint8_t*>(shared + packs);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < packs; i += blockDim.x) shared[i] = from[i];
  for (unsigned i = threadIdx.x; i < index.slots; i += blockDim.x) table_of[i] = index.table_of[i];
  __syncthreads();
  return {reinterpret_cast<const EncodeEntry*>(shared), table_of, index.tables, index.slots};
}

__device__ bool is_full(std::uint32_t x, const EncodeEntry& entry) { return x >> 20 >= entry.word >> EncodeEntry::kFrequencyAt; }

__device__ std::uint32_t with_token(std::uint32_t x, const EncodeEntry& entry) {
  const std::uint32_t t = __umulhi(x, entry.factor);
  const std::uint32_t quotient = __funnelshift_r(t + ((x - t) >> 1), 0, entry.word);  // by its low 5 bits
  const std::uint32_t bias = entry.word >> EncodeEntry::kBiasAt & EncodeEntry::kBiasMask;
  return x + bias + quotient * (kProbabilityScale - (entry.word >> EncodeEntry::kFrequencyAt));
}

// Where `yes`: without a branch, in which lanes would part.
__device__ void store_if(bool yes, std::uint16_t* to, std::uint32_t value) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.u16 [%1], %2; }"
               ::"r"(static_cast<unsigned>(yes)), "l"(to), "h"(static_cast<std::uint16_t>(value)) : "memory");
}

// Tokens and levels of the next batch are on their way while the states take in this one.
template <bool kAllStates, unsigned kSteps>
__global__ void __launch_bounds__(kWarp* kChunksPerBlock)
    encode_kernel(const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels, Layout layout,
                  const std::uint16_t* __restrict__ slot_of_plane, unsigned lanes, EncodeIndex device_index, std::byte* __restrict__ room,
                  std::uint32_t* __restrict__ states, std::uint32_t* __restrict__ word_counts) {
  extern __shared__ uint4 shared[];
  const EncodeIndex index = in_shared_memory(device_index, shared);
  const std::uint64_t c = own_chunk();
  if (c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  tokens += chunk.begin;
  levels += chunk.begin;
  const std::uint64_t share = words_room(layout.chunk_units * layout.symbols);
  auto* const words = reinterpret_cast<std::uint16_t*>(room + c * share);
  const auto end = static_cast<unsigned>(share / 2);
  unsigned first = end;  // of the words so far
  const unsigned lane = lane_index();
  const unsigned below = (1U << lane) - 1;
  BackwardBatches<kAllStates, kSteps> batches(layout, chunk, slot_of_plane, lanes, lane);
  std::uint32_t x = kLowestState;
  EncodeBatch<kSteps> next;
  bool more = true;
  batches.take(tokens, levels, next);
  while (more) {
    EncodeEntry entries[kSteps];
    next.entries(index, entries);
    more = !batches.over();
    if (more) batches.take(tokens, levels, next);
#pragma unroll
    for (unsigned k = 0; k < kSteps; ++k) {
      const bool full = is_full(x, entries[k]);
      const unsigned writers = __ballot_sync(kAllLanes, full);
      first -= static_cast<unsigned>(__popc(writers));
      store_if(full, words + first + static_cast<unsigned>(__popc(writers & below)), x);
      x = with_token(full ? x >> 16 : x, entries[k]);
    }
  }
  states[c * kMaxStates + lane] = x;
  if (lane == 0) word_counts[c] = end - first;
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

void encode_chunks(const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout, const std::uint16_t* slot_of_plane,
                   unsigned lanes, const EncodeIndex& index, std::byte* room, std::uint32_t* states, std::uint32_t* word_counts,
                   Stream stream) {
  constexpr unsigned kMostBytes = kMaxTables * kEntryBytes + kMostSlots;
  static_assert(kMostBytes < 99U << 10U, "more than every device has");
  if (shared_bytes(index) > kMostBytes) throw std::logic_error("more tables or slots than fit into shared memory");
  constexpr unsigned kManySteps = 8;
  constexpr unsigned kFewSteps = 2;
  const std::uint64_t plane = layout.blocks ? layout.chunk_units : layout.row;
  const bool many = lanes == kWarp && plane >= kManySteps / 2 * kWarp;
  const auto kernel = many ? encode_kernel<true, kManySteps> : encode_kernel<false, kFewSteps>;
  // Always the same: other threads launch the kernel, too.
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostBytes)), "encode_chunks");
  kernel<<<blocks_for(layout), kWarp * kChunksPerBlock, shared_bytes(index), stream>>>(tokens, levels, layout, slot_of_plane, lanes, index,
                                                                                       room, states, word_counts);
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
