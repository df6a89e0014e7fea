#include "epipe/codec/kernels/cuda/rans.h"

#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kChunksPerBlock = 4;  // one warp each

__device__ std::uint64_t own_chunk() { return static_cast<std::uint64_t>(blockIdx.x) * kChunksPerBlock + threadIdx.x / kWarp; }
__device__ unsigned lane_index() { return threadIdx.x % kWarp; }
__device__ unsigned slot_of(const Layout& layout, const Coding& coding, unsigned plane) {
  return layout.blocks ? coding.slot_of_plane[plane] : 0U;
}

// ---- encoding ----

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

// ---- decoding ----

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

// The words of a chunk: 64 of them lie in the registers of a warp, so that taking some never waits for memory.
class Words {
 public:
  __device__ Words(const std::uint16_t* in, const std::uint16_t* end, unsigned lane) : next_(in + lane), end_(end), left_(end - in) {
    low_ = load();
    high_ = load();
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
      high_ = load();
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
  std::uint32_t low_, high_;
  unsigned taken_ = 0;
};

// A plane of a chunk, and how it follows from those before it.
struct DecodePlane {
  const Layout& layout;
  unsigned index, stride, begin, length;
  Parents parents;  // of blocks

  __device__ DecodePlane(const Layout& own_layout, const DeviceChunk& chunk, unsigned p)
      : layout(own_layout),
        index(p),
        stride(static_cast<unsigned>(own_layout.blocks ? chunk.units : own_layout.row)),
        begin(p * stride),
        length(own_layout.blocks ? stride : min(stride, static_cast<unsigned>(chunk.units) - begin)),
        parents(own_layout.width, p) {}

  // The context level of symbol i, from the magnitudes of earlier planes. All but the neighbours were written by this lane.
  __device__ unsigned level(unsigned i, const std::uint8_t* magnitudes, std::uint16_t* means) const {
    if (layout.blocks) return parents.level([&](unsigned k) -> unsigned { return magnitudes[k * stride + i]; });
    if (layout.context == Context::kNone || index == 0) return 0;
    const std::uint8_t* const before = magnitudes + begin - stride + i;
    if (layout.context == Context::kRunning) {
      const unsigned mean = next_mean(index == 1 ? 128U * before[0] : means[i], before[0]);
      means[i] = static_cast<std::uint16_t>(mean);
      return running_level(mean);
    }
    unsigned sum = 2U * before[0];
    if (i > 0) sum += before[-1];
    if (i + 1 < length) sum += before[1];
    return neighbour_level(sum);
  }
};

// A TokenIndex in shared memory.
class SharedIndex {
 public:
  static constexpr unsigned kTableBytes = kTokenRoom * 4 + TokenIndex::kBuckets;

  // By all threads of a block. `room` has kTableBytes per table.
  __device__ SharedIndex(const TokenIndex& index, std::uint32_t* room)
      : by_token_(room), first_(reinterpret_cast<const std::uint8_t*>(room + index.tables * kTokenRoom)) {
    for (unsigned i = threadIdx.x; i < index.tables * kTokenRoom; i += blockDim.x) room[i] = index.by_token[i];
    auto* const first = reinterpret_cast<std::uint32_t*>(room + index.tables * kTokenRoom);
    const auto* const from = reinterpret_cast<const std::uint32_t*>(index.first);
    for (unsigned i = threadIdx.x; i < index.tables * TokenIndex::kBuckets / 4; i += blockDim.x) first[i] = from[i];
    __syncthreads();
  }

  // Takes a token out of a state.
  __device__ unsigned take(unsigned table, std::uint32_t* state) const {
    const std::uint32_t slot = *state & (kProbabilityScale - 1);
    unsigned token = first_[table * TokenIndex::kBuckets + (slot >> TokenIndex::kBucketBits)];
    std::uint32_t entry = by_token_[table * kTokenRoom + token];
    // The frequencies of a table add up to all slots, so some token has this one.
    while (slot - (entry & 0xffff) >= entry >> 16) entry = by_token_[table * kTokenRoom + ++token];
    *state = (entry >> 16) * (*state >> kProbabilityBits) + slot - (entry & 0xffff);
    return token;
  }

 private:
  const std::uint32_t* by_token_;
  const std::uint8_t* first_;
};

constexpr unsigned kDecodeSteps = 4;  // whose levels are looked up together, while those before are decoded
constexpr unsigned kNoTable = 0xffffffffU;

// The tables of the lane's symbols in some steps of a plane; kNoTable where there is no symbol.
struct DecodeBatch {
  unsigned table[kDecodeSteps];

  __device__ void fill(const DecodePlane& plane, unsigned slot, unsigned first, const Coding& coding, const std::uint8_t* magnitudes,
                       std::uint16_t* means) {
    unsigned level[kDecodeSteps];
#pragma unroll
    for (unsigned k = 0; k < kDecodeSteps; ++k) {
      const unsigned i = first + k * coding.lanes + lane_index();
      const bool exists = lane_index() < coding.lanes && i < plane.length;
      table[k] = exists ? 0 : kNoTable;
      level[k] = exists ? plane.level(i, magnitudes, means) : 0;
    }
#pragma unroll
    for (unsigned k = 0; k < kDecodeSteps; ++k) table[k] |= __ldg(coding.table_of + slot + level[k]);
  }
};

__device__ bool decode_chunk(const std::byte* payload, const CodedChunk& coded, const Layout& layout, const DeviceChunk& chunk,
                             const Coding& coding, const SharedIndex& index, const Values& values, std::uint8_t* magnitudes,
                             std::uint16_t* means, float* y) {
  const unsigned lane = lane_index();
  const unsigned below = (1U << lane) - 1;
  if (coded.word_bytes < 4 * coding.lanes || coded.word_bytes % 2 != 0) return false;
  const auto* const in = reinterpret_cast<const std::uint16_t*>(payload + coded.words);
  std::uint32_t x = lane < coding.lanes ? in[2 * lane] | static_cast<std::uint32_t>(in[2 * lane + 1]) << 16 : kLowestState;
  if (__any_sync(kAllLanes, x < kLowestState)) return false;
  Words words(in + 2 * coding.lanes, in + coded.word_bytes / 2, lane);
  RawBits raw(payload + coded.raw, coded.raw_bytes);
  const auto planes = static_cast<unsigned>(chunk.planes(layout));
  const unsigned batch_symbols = kDecodeSteps * coding.lanes;
  for (unsigned p = 0; p < planes; ++p) {
    const DecodePlane plane(layout, chunk, p);
    const unsigned slot = slot_of(layout, coding, p);
    DecodeBatch next;
    next.fill(plane, slot, 0, coding, magnitudes, means);
    for (unsigned first = 0; first < plane.length; first += batch_symbols) {
      const DecodeBatch batch = next;
      if (first + batch_symbols < plane.length) next.fill(plane, slot, first + batch_symbols, coding, magnitudes, means);
      std::uint8_t tokens[kDecodeSteps];
      float decoded[kDecodeSteps];
#pragma unroll
      for (unsigned k = 0; k < kDecodeSteps; ++k) {
        if (first + k * coding.lanes >= plane.length) break;
        const unsigned table = batch.table[k];
        const bool active = table != kNoTable;
        const unsigned token = active ? index.take(table, &x) : 0;
        const bool empty = active && x < kLowestState;
        if (const unsigned readers = __ballot_sync(kAllLanes, empty); readers != 0) {
          std::uint32_t word;
          if (!words.take(readers, below, &word)) return false;
          if (empty) x = x << 16 | word;
        }
        const bool escapes = active && token >= kFirstEscape;
        tokens[k] = static_cast<std::uint8_t>(token);
        decoded[k] = active ? __ldg(values.by_token + table * kTokenRoom + token) : 0.0F;
        if (__any_sync(kAllLanes, escapes)) {
          std::uint32_t bits = 0;
          if (!raw.take(escapes ? raw_bits(tokens[k]) : 0, &bits)) return false;
          if (escapes) {
            const std::int32_t large = escape_base(tokens[k]) + static_cast<std::int32_t>(bits);
            decoded[k] = device_level_value(large, is_negative(tokens[k]), values.shifts + 2 * table, values.step);
          }
        }
      }
      // Only now, so that no state waits for a value.
#pragma unroll
      for (unsigned k = 0; k < kDecodeSteps; ++k) {
        if (batch.table[k] == kNoTable) continue;
        const unsigned at = plane.begin + first + k * coding.lanes + lane;
        y[at] = decoded[k];
        magnitudes[at] = magnitude_of(tokens[k]);
      }
    }
    if (layout.context == Context::kNeighbours) __syncwarp();
  }
  return __all_sync(kAllLanes, x == kLowestState) && words.over() && raw.over();
}

__global__ void __launch_bounds__(kWarp* kChunksPerBlock)
    decode_kernel(const std::byte* __restrict__ payload, const CodedChunk* __restrict__ chunks, Layout layout, Coding coding,
                  TokenIndex index, Values values, std::uint8_t* magnitudes, std::uint16_t* means, float* __restrict__ y,
                  std::uint32_t* unsound) {
  extern __shared__ std::uint32_t room[];
  const SharedIndex shared(index, room);
  const std::uint64_t c = own_chunk();
  if (c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  std::uint16_t* const own_means = means == nullptr ? nullptr : means + c * layout.row;
  if (!decode_chunk(payload, chunks[c], layout, chunk, coding, shared, values, magnitudes + chunk.begin, own_means, y + chunk.begin)) {
    *unsound = 1;
  }
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

void decode_chunks(const std::byte* payload, const CodedChunk* chunks, const Layout& layout, const Coding& coding, const TokenIndex& index,
                   const Values& values, std::uint8_t* magnitudes, std::uint16_t* means, float* y, std::uint32_t* unsound, Stream stream) {
  static_assert(kMaxTables * SharedIndex::kTableBytes <= 48U << 10, "what a block has without asking for more");
  decode_kernel<<<blocks_for(layout), kWarp * kChunksPerBlock, index.tables * SharedIndex::kTableBytes, stream>>>(
      payload, chunks, layout, coding, index, values, magnitudes, means, y, unsound);
  check_launch("decode_chunks");
}

}  // namespace epipe::kernels::cuda
