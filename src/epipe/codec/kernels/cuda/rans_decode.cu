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
  __device__ Words(const std::uint16_t* in, const std::uint16_t* end, unsigned lane) : next_(in + lane), end_(end), left_(end - in) {
    low_ = load();
    high_ = load();
    coming_ = load();
  }
  // The next words go to the lanes of the mask, in their order. False, for all lanes, when there are too few.
  __device__ bool take(unsigned lanes, unsigned below, std::uint32_t* word) {
    const int count = __popc(lanes);
    if (left_ < count) return false;
    const unsigned index = taken_ + static_cast<unsigned>(__popc(lanes & below));
    const std::uint32_t from_low = __shfl_sync(kAllLanes, low_, static_cast<int>(index % kWarp));
    const std::uint32_t from_high = __shfl_sync(kAllLanes, high_, static_cast<int>(index % kWarp));
    *word = index < kWarp ? from_low : from_high;
    left_ -= count;
    taken_ += static_cast<unsigned>(count);
    if (taken_ >= kWarp) {
      taken_ -= kWarp;
      low_ = high_;
      high_ = coming_;
      coming_ = load();
    }
    return true;
  }
  __device__ bool over() const { return left_ == 0; }

 private:
  __device__ std::uint32_t load() {
    const std::uint32_t word = next_ < end_ ? *next_ : 0;
    next_ += kWarp;
    return word;
  }
  const std::uint16_t* next_;
  const std::uint16_t* end_;
  std::ptrdiff_t left_;
  std::uint32_t low_, high_, coming_;
  unsigned taken_ = 0;
};

// A TokenIndex, in shared memory where it has room there.
template <bool kShared>
class TokenFinder {
 public:
  // By all threads of a block. `room` is for the index.
  __device__ TokenFinder(const TokenIndex& index, uint4* room) : by_rank_(index.by_rank), first_(index.first) {
    if constexpr (kShared) {
      const unsigned entries = index.tables * kTokenRoom * 4 / sizeof(uint4);
      const unsigned all = entries + index.tables * TokenIndex::kBuckets / static_cast<unsigned>(sizeof(uint4));
      const auto* const ranks = reinterpret_cast<const uint4*>(index.by_rank);
      const auto* const first = reinterpret_cast<const uint4*>(index.first);
#pragma unroll 4
      for (unsigned i = threadIdx.x; i < all; i += blockDim.x) room[i] = i < entries ? ranks[i] : first[i - entries];
      by_rank_ = reinterpret_cast<const std::uint32_t*>(room);
      first_ = reinterpret_cast<const std::uint8_t*>(room + entries);
      __syncthreads();
    }
  }

  // Takes a token out of a state. Both tokens that a bucket can have are looked up at once.
  __device__ unsigned take(unsigned table, std::uint32_t* state) const {
    const std::uint32_t slot = *state % kProbabilityScale;
    const std::uint32_t* const ranks =
        by_rank_ + table * kTokenRoom + first_[table * TokenIndex::kBuckets + slot / TokenIndex::kBucketSlots];
    const std::uint32_t one = ranks[0];
    const std::uint32_t next = ranks[1];
    const std::uint32_t entry = slot >= TokenIndex::start(next) ? next : one;
    *state = TokenIndex::frequency(entry) * (*state >> kProbabilityBits) + slot - TokenIndex::start(entry);
    return TokenIndex::token(entry);
  }

 private:
  const std::uint32_t* by_rank_;
  const std::uint8_t* first_;
};

constexpr unsigned kSteps = 4;  // that are decoded in a row: what the next ones depend on is fetched meanwhile

// What the context of a symbol comes down to: a key, below kKeys, for a level. fetch() starts what key() needs for a step.
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
  __device__ unsigned key(unsigned, unsigned) { return 0; }
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
  __device__ unsigned key(unsigned k, unsigned) { return parents_.sum(above_[k], left_[k], diagonal_[k], above2_[k], left2_[k]); }
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
  __device__ unsigned key(unsigned k, unsigned) { return first_ ? 0 : 2U * middle_[k] + left_[k] + right_[k]; }
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
  __device__ unsigned key(unsigned k, unsigned i) {
    if (row_ == 0) return 0;
    const unsigned mean = next_mean(row_ == 1 ? 128U * magnitude_[k] : mean_[k], magnitude_[k]);
    means_[i] = static_cast<std::uint16_t>(mean);
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

constexpr unsigned kNoTable = 0xffffffffU;  // of a lane without a symbol

// What a warp reads and writes.
struct ChunkRoom {
  std::uint8_t* table_of_key;  // shared
  std::uint8_t* magnitudes;
  std::uint16_t* means;
  float* y;
};

template <Context kContext, bool kAllStates, typename Finder>
__device__ bool decode_chunk(const std::byte* payload, const CodedChunk& coded, const Layout& layout, const DeviceChunk& chunk,
                             const Coding& coding, const Finder& finder, const Values& values, const ChunkRoom& room) {
  const unsigned lanes = kAllStates ? kWarp : coding.lanes;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned below = (1U << lane) - 1;
  if (coded.word_bytes < 4 * lanes || coded.word_bytes % 2 != 0) return false;
  const auto* const in = reinterpret_cast<const std::uint16_t*>(payload + coded.words);
  std::uint32_t x = lane < lanes ? in[2 * lane] | static_cast<std::uint32_t>(in[2 * lane + 1]) << 16 : kLowestState;
  if (__any_sync(kAllLanes, x < kLowestState)) return false;
  Words words(in + 2 * lanes, in + coded.word_bytes / 2, lane);
  RawBits raw(payload + coded.raw, coded.raw_bytes);
  const auto planes = static_cast<unsigned>(chunk.planes(layout));
  for (unsigned p = 0; p < planes; ++p) {
    const PlaneOfChunk plane(layout, chunk, p);
    if (Keys<kContext>::kLevelsByPlane || p < 2) look_up_tables<kContext>(layout, coding, p, room.table_of_key);
    Keys<kContext> keys(layout, plane, room.magnitudes, room.means);
#pragma unroll
    for (unsigned k = 0; k < kSteps; ++k) keys.fetch(k, min(k * lanes + lane, plane.length - 1));
    for (unsigned first = lane; first - lane < plane.length; first += kSteps * lanes) {
      unsigned table[kSteps];
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) {
        const unsigned i = first + k * lanes;
        const bool exists = (kAllStates || lane < lanes) && i < plane.length;
        table[k] = exists ? room.table_of_key[keys.key(k, i)] : kNoTable;
      }
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) keys.fetch(k, min(first + (kSteps + k) * lanes, plane.length - 1));
      unsigned token[kSteps];
      float decoded[kSteps];
      bool escapes = false;
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) {
        const bool active = table[k] != kNoTable;
        token[k] = active ? finder.take(table[k], &x) : 0;
        if (const unsigned readers = __ballot_sync(kAllLanes, x < kLowestState); readers != 0) {
          std::uint32_t word;
          if (!words.take(readers, below, &word)) return false;
          if (x < kLowestState) x = x << 16 | word;
        }
        decoded[k] = active ? __ldg(values.by_token + table[k] * kTokenRoom + token[k]) : 0.0F;
        escapes |= token[k] >= kFirstEscape;
      }
      if (__any_sync(kAllLanes, escapes)) {
#pragma unroll
        for (unsigned k = 0; k < kSteps; ++k) {
          const auto small = static_cast<std::uint8_t>(token[k]);
          const bool escape = small >= kFirstEscape;
          std::uint32_t bits = 0;
          if (!raw.take(escape ? raw_bits(small) : 0, &bits)) return false;
          if (!escape) continue;
          const std::int32_t large = escape_base(small) + static_cast<std::int32_t>(bits);
          decoded[k] = device_level_value(large, is_negative(small), values.shifts + 2 * table[k], values.step);
        }
      }
#pragma unroll
      for (unsigned k = 0; k < kSteps; ++k) {
        if (table[k] == kNoTable) continue;
        const unsigned at = plane.begin + first + k * lanes;
        room.y[at] = decoded[k];
        room.magnitudes[at] = magnitude_of(static_cast<std::uint8_t>(token[k]));
      }
    }
    if (kContext == Context::kNeighbours) __syncwarp();
  }
  return __all_sync(kAllLanes, x == kLowestState) && words.over() && raw.over();
}

constexpr unsigned kMostChunksPerBlock = 16;  // one warp each

template <Context kContext, bool kAllStates, bool kShared>
__global__ void __launch_bounds__(kWarp* kMostChunksPerBlock)
    decode_kernel(const std::byte* __restrict__ payload, const CodedChunk* __restrict__ chunks, Layout layout, Coding coding,
                  TokenIndex index, Values values, std::uint8_t* magnitudes, std::uint16_t* means, float* __restrict__ y,
                  std::uint32_t* unsound) {
  extern __shared__ uint4 shared[];
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned warps = blockDim.x / kWarp;
  const TokenFinder<kShared> finder(index, shared + warps * kKeys / sizeof(uint4));
  const std::uint64_t c = static_cast<std::uint64_t>(blockIdx.x) * warps + warp;
  if (c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  const ChunkRoom room = {reinterpret_cast<std::uint8_t*>(shared) + warp * kKeys, magnitudes + chunk.begin,
                          means == nullptr ? nullptr : means + c * layout.row, y + chunk.begin};
  if (!decode_chunk<kContext, kAllStates>(payload, chunks[c], layout, chunk, coding, finder, values, room)) *unsound = 1;
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

// As few as give every multiprocessor a block: a warp is fastest alone, but blocks with large tables do not fit side by side.
unsigned chunks_per_block(std::uint64_t chunks) {
  unsigned count = 4;
  while (count < kMostChunksPerBlock && chunks > std::uint64_t{count} * attribute(cudaDevAttrMultiProcessorCount)) count *= 2;
  return count;
}

}  // namespace

void decode_chunks(const std::byte* payload, const CodedChunk* chunks, const Layout& layout, const Coding& coding, const TokenIndex& index,
                   const Values& values, std::uint8_t* magnitudes, std::uint16_t* means, float* y, std::uint32_t* unsound, Stream stream) {
  const unsigned warps = chunks_per_block(layout.chunks);
  const unsigned index_bytes = index.tables * (kTokenRoom * 4 + TokenIndex::kBuckets);
  const bool all_states = coding.lanes == kWarp;
  const bool shared = all_states && warps * kKeys + index_bytes <= attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const unsigned shared_bytes = warps * kKeys + (shared ? index_bytes : 0);
  const Kernel kernel = kernel_for(layout.blocks ? Context::kParents : layout.context, all_states, shared);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)), "decode_chunks");
  const auto blocks = static_cast<unsigned>((layout.chunks + warps - 1) / warps);
  kernel<<<blocks, kWarp * warps, shared_bytes, stream>>>(payload, chunks, layout, coding, index, values, magnitudes, means, y, unsound);
  check_launch("decode_chunks");
}

}  // namespace epipe::kernels::cuda
