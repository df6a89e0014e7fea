#include "epipe/codec/kernels/cuda/rans.h"

#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

// The raw bits of a chunk, taken by all lanes of a warp together in the order of the lanes.
class RawBits {
 public:
  __device__ RawBits(const std::byte* in, std::uint32_t bytes) : in_(in), bits_(8 * static_cast<std::uint64_t>(bytes)) {}
  // `width` bits for this lane, none for a width of 0. False, for all lanes, when they run out.
  __device__ bool take(unsigned width, std::uint32_t* value) {
    std::uint32_t total;
    const std::uint64_t at = cursor_ + warp_sum_before(width, &total);
    if (cursor_ + total > bits_) return false;
    cursor_ += total;
    if (width == 0) return true;
    std::uint32_t field = 0;
    for (unsigned i = 0; 8 * i < at % 8 + width; ++i) field |= static_cast<std::uint32_t>(in_[at / 8 + i]) << (8 * i);
    *value = field >> (at % 8) & ((1U << width) - 1);
    return true;
  }
  __device__ bool over() const { return bits_ - cursor_ < 8; }

 private:
  const std::byte* in_;
  std::uint64_t bits_;
  std::uint64_t cursor_ = 0;
};

// The words of a chunk: 64 of them lie in the registers of a warp and 32 are on their way, so that taking some never waits for memory.
class Words {
 public:
  __device__ Words(const std::uint16_t* in, const std::uint16_t* end, unsigned lane)
      : next_(in + lane), end_(end), left_(static_cast<int>(end - in)) {
    low_ = load();
    high_ = load();
    coming_ = load();
  }
  // The next words go to the lanes of the mask, in their order; zeros behind the last one.
  __device__ std::uint32_t take(unsigned lanes, unsigned below) {
    const auto count = static_cast<unsigned>(__popc(lanes));
    const unsigned index = taken_ + static_cast<unsigned>(__popc(lanes & below));
    const std::uint32_t from_low = __shfl_sync(kAllLanes, low_, static_cast<int>(index % kWarp));
    const std::uint32_t from_high = __shfl_sync(kAllLanes, high_, static_cast<int>(index % kWarp));
    left_ -= static_cast<int>(count);
    taken_ += count;
    if (taken_ >= kWarp) {
      taken_ -= kWarp;
      low_ = high_;
      high_ = coming_;
      coming_ = load();
    }
    return index < kWarp ? from_low : from_high;
  }
  __device__ bool too_few() const { return left_ < 0; }
  __device__ bool over() const { return left_ == 0; }

 private:
  __device__ std::uint32_t load() {
    const std::uint32_t word = next_ < end_ ? *next_ : 0;
    next_ += kWarp;
    return word;
  }
  const std::uint16_t* next_;
  const std::uint16_t* end_;
  int left_;
  std::uint32_t low_, high_, coming_;
  unsigned taken_ = 0;
};

// A TokenIndex, in shared memory where it has room there.
template <bool kShared>
class TokenFinder {
 public:
  // By all threads of a block. `room` is for the index.
  __device__ TokenFinder(const TokenIndex& index, uint4* room) : token_of_(index.token_of), entries_(index.entries) {
    if constexpr (kShared) {
      const unsigned entries = index.tables * kTokenRoom * sizeof(TokenEntry) / sizeof(uint4);
      const unsigned all = index.tables * TokenIndex::kTableBytes / sizeof(uint4);
      const auto* const from_entries = reinterpret_cast<const uint4*>(index.entries);
      const auto* const from_tokens = reinterpret_cast<const uint4*>(index.token_of);
#pragma unroll 8
      for (unsigned i = threadIdx.x; i < all; i += blockDim.x) room[i] = i < entries ? from_entries[i] : from_tokens[i - entries];
      entries_ = reinterpret_cast<const TokenEntry*>(room);
      token_of_ = reinterpret_cast<const std::uint8_t*>(room + entries);
      __syncthreads();
    }
  }

  struct Found {
    unsigned token;
    float value;
    std::uint32_t state;  // without the token
  };
  __device__ Found find(unsigned table, std::uint32_t state) const {
    const std::uint32_t slot = state % kProbabilityScale;
    const unsigned token = token_of_[table * kProbabilityScale + slot];
    const uint2 entry = reinterpret_cast<const uint2*>(entries_)[table * kTokenRoom + token];  // in one load
    return {token, __uint_as_float(entry.y), (entry.x >> 16) * (state >> kProbabilityBits) + slot - (entry.x & 0xffff)};
  }

 private:
  const std::uint8_t* token_of_;
  const TokenEntry* entries_;
};

constexpr unsigned kSteps = 4;  // that are decoded in a row: what the next ones depend on is fetched meanwhile

// What the context of a symbol comes down to: a key, below kKeys, for a level. fetch() starts what key() needs for a step. Lanes whose
// symbol i does not exist fetch that of another one, and their key is one of the others.
constexpr unsigned kKeys = 256;

struct PlaneOfChunk {
  unsigned index, stride, begin, length;

  __device__ PlaneOfChunk(const Layout& layout, const DeviceChunk& chunk, unsigned p)
      : index(p),
        stride(static_cast<unsigned>(layout.blocks ? chunk.units : layout.row)),
        begin(p * stride),
        length(layout.blocks ? stride : min(stride, static_cast<unsigned>(chunk.units) - begin)) {}
};

template <Context kContext>
class Keys;

template <>
class Keys<Context::kNone> {
 public:
  static constexpr bool kLevelsByPlane = false;
  __device__ Keys(const Layout&, const PlaneOfChunk&, const std::uint8_t*, std::uint16_t*) {}
  __device__ void fetch(unsigned, unsigned) {}
  __device__ unsigned key(unsigned, unsigned, bool) { return 0; }
  __device__ static unsigned level(unsigned) { return 0; }
};

template <>
class Keys<Context::kParents> {
 public:
  static constexpr bool kLevelsByPlane = true;  // each plane has a slot of its own
  static_assert(7 * kMaxMagnitude < kKeys);

  __device__ Keys(const Layout& layout, const PlaneOfChunk& plane, const std::uint8_t* magnitudes, std::uint16_t*)
      : parents_(layout.width, plane.index), magnitudes_(magnitudes), stride_(plane.stride) {}
  __device__ void fetch(unsigned k, unsigned i) {
    above_[k] = at(parents_.above, i);
    left_[k] = at(parents_.left, i);
    diagonal_[k] = at(parents_.diagonal, i);
    above2_[k] = at(parents_.above2, i);
    left2_[k] = at(parents_.left2, i);
  }
  __device__ unsigned key(unsigned k, unsigned, bool) { return parents_.sum(above_[k], left_[k], diagonal_[k], above2_[k], left2_[k]); }
  __device__ static unsigned level(unsigned key) { return reached<kParentLimits>(key); }

 private:
  __device__ std::uint8_t at(unsigned plane, unsigned i) const { return magnitudes_[plane * stride_ + i]; }
  Parents parents_;
  const std::uint8_t* magnitudes_;
  unsigned stride_;
  std::uint8_t above_[kSteps], left_[kSteps], diagonal_[kSteps], above2_[kSteps], left2_[kSteps];
};

// Of rows, the magnitudes in the row before. The first row has level 0.
template <>
class Keys<Context::kNeighbours> {
 public:
  static constexpr bool kLevelsByPlane = false;
  static_assert(4 * kMaxMagnitude < kKeys);

  __device__ Keys(const Layout&, const PlaneOfChunk& plane, const std::uint8_t* magnitudes, std::uint16_t*)
      : before_(magnitudes + (plane.index == 0 ? 0 : plane.begin - plane.stride)), length_(plane.length), first_(plane.index == 0) {}
  __device__ void fetch(unsigned k, unsigned i) {
    if (first_) return;
    middle_[k] = before_[i];
    left_[k] = i > 0 ? before_[i - 1] : 0;
    right_[k] = i + 1 < length_ ? before_[i + 1] : 0;
  }
  __device__ unsigned key(unsigned k, unsigned, bool) { return first_ ? 0 : 2U * middle_[k] + left_[k] + right_[k]; }
  __device__ static unsigned level(unsigned key) { return neighbour_level(key); }

 private:
  const std::uint8_t* before_;
  unsigned length_;
  bool first_;
  std::uint8_t middle_[kSteps], left_[kSteps], right_[kSteps];
};

// Of rows, a running mean of the magnitudes above. All limits but the lowest, 1, are multiples of 8.
template <>
class Keys<Context::kRunning> {
 public:
  static constexpr bool kLevelsByPlane = false;
  static_assert(1 + 128 * kMaxMagnitude / 8 < kKeys);

  __device__ Keys(const Layout&, const PlaneOfChunk& plane, const std::uint8_t* magnitudes, std::uint16_t* means)
      : before_(magnitudes + (plane.index == 0 ? 0 : plane.begin - plane.stride)), means_(means), row_(plane.index) {}
  __device__ void fetch(unsigned k, unsigned i) {
    if (row_ == 0) return;
    magnitude_[k] = before_[i];
    mean_[k] = row_ == 1 ? 0 : means_[i];
  }
  __device__ unsigned key(unsigned k, unsigned i, bool exists) {
    if (row_ == 0) return 0;
    const unsigned mean = next_mean(row_ == 1 ? 128U * magnitude_[k] : mean_[k], magnitude_[k]);
    if (exists) means_[i] = static_cast<std::uint16_t>(mean);
    return mean == 0 ? 0 : 1 + mean / 8;
  }
  __device__ static unsigned level(unsigned key) { return running_level(key == 0 ? 0 : max(1U, 8 * (key - 1))); }

 private:
  const std::uint8_t* before_;
  std::uint16_t* means_;
  unsigned row_;
  std::uint8_t magnitude_[kSteps];
  std::uint16_t mean_[kSteps];
};

// The tables of a plane's symbols by their keys, in shared memory. By all lanes of a warp.
template <Context kContext>
__device__ void look_up_tables(const Layout& layout, const Coding& coding, unsigned plane, std::uint8_t* table_of_key) {
  const std::uint8_t* const tables = coding.table_of + (layout.blocks ? coding.slot_of_plane[plane] : 0U);
  const bool no_context = !layout.blocks && plane == 0;
  __syncwarp();
  for (unsigned key = threadIdx.x % kWarp; key < kKeys; key += kWarp) {
    table_of_key[key] = tables[no_context ? 0 : Keys<kContext>::level(key)];
  }
  __syncwarp();
}

// What a warp reads and writes.
struct ChunkRoom {
  std::uint8_t* table_of_key;  // shared
  std::uint8_t* magnitudes;
  std::uint16_t* means;
  float* y;
};

// A lane of a warp. Read once: where these are expressions of threadIdx the compiler reads it again in every step.
struct Lane {
  unsigned index, below;  // below: a mask of the lanes before

  __device__ Lane() {
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(index));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  }
};

// Lanes without a symbol go along with the others, so that a warp does not part: what they find is not kept.
template <Context kContext, bool kAllStates, typename Finder>
__device__ bool decode_chunk(const std::byte* payload, const CodedChunk& coded, const Layout& layout, const DeviceChunk& chunk,
                             const Coding& coding, const Finder& finder, const Escapes& escapes, const ChunkRoom& room) {
  const Lane lane;
  const unsigned lanes = kAllStates ? kWarp : coding.lanes;
  if (coded.word_bytes < 4 * lanes || coded.word_bytes % 2 != 0) return false;
  const auto* const in = reinterpret_cast<const std::uint16_t*>(payload + coded.words);
  std::uint32_t x = lane.index < lanes ? in[2 * lane.index] | static_cast<std::uint32_t>(in[2 * lane.index + 1]) << 16 : kLowestState;
  if (__any_sync(kAllLanes, x < kLowestState)) return false;
  Words words(in + 2 * lanes, in + coded.word_bytes / 2, lane.index);
  RawBits raw(payload + coded.raw, coded.raw_bytes);
  const auto planes = static_cast<unsigned>(chunk.planes(layout));
  for (unsigned p = 0; p < planes; ++p) {
    const PlaneOfChunk plane(layout, chunk, p);
    const unsigned own_end = kAllStates || lane.index < lanes ? plane.length : 0;  // the lane's symbols are below
    if (Keys<kContext>::kLevelsByPlane || p < 2) look_up_tables<kContext>(layout, coding, p, room.table_of_key);
    Keys<kContext> keys(layout, plane, room.magnitudes, room.means);
#pragma unroll
    for (unsigned k = 0; k < kSteps; ++k) keys.fetch(k, min(k * lanes + lane.index, plane.length - 1));
    for (unsigned first = 0; first < plane.length; first += kSteps * lanes) {
      const unsigned own = first + lane.index;
      unsigned table[kSteps];
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) table[k] = room.table_of_key[keys.key(k, own + k * lanes, own + k * lanes < own_end)];
      if (first + kSteps * lanes < plane.length) {
#pragma unroll
        for (unsigned k = 0; k < kSteps; ++k) keys.fetch(k, min(own + (kSteps + k) * lanes, plane.length - 1));
      }
      unsigned token[kSteps];
      float decoded[kSteps];
      bool escapes_here = false;
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) {
        const bool exists = own + k * lanes < own_end;
        const auto found = finder.find(table[k], x);
        x = exists ? found.state : x;
        token[k] = exists ? found.token : 0;
        decoded[k] = found.value;
        escapes_here |= token[k] >= kFirstEscape;
        if (const unsigned readers = __ballot_sync(kAllLanes, x < kLowestState); readers != 0) {
          const std::uint32_t word = words.take(readers, lane.below);
          x = x < kLowestState ? x << 16 | word : x;
        }
      }
      if (words.too_few()) return false;
      if (__any_sync(kAllLanes, escapes_here)) {
#pragma unroll
        for (unsigned k = 0; k < kSteps; ++k) {
          const auto small = static_cast<std::uint8_t>(token[k]);
          const bool escape = small >= kFirstEscape;
          std::uint32_t bits = 0;
          if (!raw.take(escape ? raw_bits(small) : 0, &bits)) return false;
          if (!escape) continue;
          const std::int32_t large = escape_base(small) + static_cast<std::int32_t>(bits);
          decoded[k] = device_level_value(large, is_negative(small), escapes.shifts + 2 * table[k], escapes.step);
        }
      }
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) {
        if (own + k * lanes >= own_end) continue;
        const unsigned at = plane.begin + own + k * lanes;
        room.y[at] = decoded[k];
        room.magnitudes[at] = magnitude_of(static_cast<std::uint8_t>(token[k]));
      }
    }
    if (!layout.blocks) __syncwarp();  // lanes read what others wrote into the row before
  }
  return __all_sync(kAllLanes, x == kLowestState) && words.over() && raw.over();
}

constexpr unsigned kMostWarps = 16;  // of a block
constexpr unsigned kLeastWarps = 4;  // those without a chunk help to fill the shared memory

// A warp per chunk, `chunks_per_block` of them.
template <Context kContext, bool kAllStates, bool kShared>
__global__ void __launch_bounds__(kWarp* kMostWarps, 1)
    decode_kernel(const std::byte* __restrict__ payload, const CodedChunk* __restrict__ chunks, unsigned chunks_per_block, Layout layout,
                  Coding coding, TokenIndex index, Escapes escapes, std::uint8_t* magnitudes, std::uint16_t* means, float* __restrict__ y,
                  std::uint32_t* unsound) {
  extern __shared__ uint4 shared[];
  const unsigned warp = threadIdx.x / kWarp;
  const TokenFinder<kShared> finder(index, shared + chunks_per_block * kKeys / sizeof(uint4));
  const std::uint64_t c = static_cast<std::uint64_t>(blockIdx.x) * chunks_per_block + warp;
  if (warp >= chunks_per_block || c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  const ChunkRoom room = {reinterpret_cast<std::uint8_t*>(shared) + warp * kKeys, magnitudes + chunk.begin,
                          means == nullptr ? nullptr : means + c * layout.row, y + chunk.begin};
  if (!decode_chunk<kContext, kAllStates>(payload, chunks[c], layout, chunk, coding, finder, escapes, room)) *unsound = 1;
}

using Kernel = decltype(&decode_kernel<Context::kNone, true, true>);

template <Context kContext>
Kernel kernel_for(bool all_states, bool shared) {
  if (!all_states) return decode_kernel<kContext, false, false>;  // small tensors
  return shared ? decode_kernel<kContext, true, true> : decode_kernel<kContext, true, false>;
}

Kernel kernel_for(Context context, bool all_states, bool shared) {
  switch (context) {
    case Context::kNone: return kernel_for<Context::kNone>(all_states, shared);
    case Context::kRunning: return kernel_for<Context::kRunning>(all_states, shared);
    case Context::kNeighbours: return kernel_for<Context::kNeighbours>(all_states, shared);
    case Context::kParents: return kernel_for<Context::kParents>(all_states, shared);
  }
  throw std::logic_error("decode_chunks: no such context");
}

unsigned attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return static_cast<unsigned>(value);
}

// As many for each multiprocessor: large tables leave room for one block, and a warp is the faster the fewer there are beside it.
unsigned balanced_chunks_per_block(std::uint64_t chunks) {
  const auto divided = [](std::uint64_t n, std::uint64_t by) { return (n + by - 1) / by; };
  const std::uint64_t processors = attribute(cudaDevAttrMultiProcessorCount);
  const std::uint64_t rounds = divided(chunks, kMostWarps * processors);
  return static_cast<unsigned>(divided(chunks, rounds * processors));
}

}  // namespace

void decode_chunks(const std::byte* payload, const CodedChunk* chunks, const Layout& layout, const Coding& coding, const TokenIndex& index,
                   const Escapes& escapes, std::uint8_t* magnitudes, std::uint16_t* means, float* y, std::uint32_t* unsound,
                   Stream stream) {
  const unsigned per_block = balanced_chunks_per_block(layout.chunks);
  const unsigned index_bytes = index.tables * TokenIndex::kTableBytes;
  const bool all_states = coding.lanes == kWarp;
  const unsigned most_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const bool shared = all_states && per_block * kKeys + index_bytes <= most_bytes;
  const unsigned shared_bytes = per_block * kKeys + (shared ? index_bytes : 0);
  const Kernel kernel = kernel_for(layout.blocks ? Context::kParents : layout.context, all_states, shared);
  // Always the same: other threads launch the kernel, too.
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_bytes)), "decode_chunks");
  const auto blocks = static_cast<unsigned>((layout.chunks + per_block - 1) / per_block);
  kernel<<<blocks, kWarp * std::max(per_block, kLeastWarps), shared_bytes, stream>>>(payload, chunks, per_block, layout, coding, index,
                                                                                     escapes, magnitudes, means, y, unsound);
  check_launch("decode_chunks");
}

}  // namespace epipe::kernels::cuda
