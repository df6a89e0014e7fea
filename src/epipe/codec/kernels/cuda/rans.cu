#include "epipe/codec/kernels/cuda/rans.h"

#include "epipe/codec/kernels/cuda/tokens.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kChunksPerBlock = 4;  // one warp each

__device__ std::uint64_t own_chunk() { return static_cast<std::uint64_t>(blockIdx.x) * kChunksPerBlock + threadIdx.x / kWarp; }
__device__ unsigned lane_index() { return threadIdx.x % kWarp; }
__device__ unsigned slot_of(const Layout& layout, const Coding& coding, std::uint64_t plane) {
  return layout.blocks ? coding.slot_of_plane[plane] : 0U;
}

// ---- encoding ----

// Walks through the symbols of a chunk from the last to the first, `lanes` at a time, one plane after the other.
class BackwardSteps {
 public:
  __device__ BackwardSteps(const Layout& layout, const DeviceChunk& chunk, unsigned lanes)
      : layout_(layout), chunk_(chunk), lanes_(lanes), plane_(chunk.planes(layout)) {}
  // False when there is nothing left.
  __device__ bool advance() {
    if (step_ == 0) {
      if (plane_ == 0) return false;
      --plane_;
      length_ = chunk_.plane_length(layout_, plane_);
      begin_ = chunk_.plane_begin(layout_, plane_);
      step_ = (length_ + lanes_ - 1) / lanes_;
    }
    --step_;
    return true;
  }
  __device__ std::uint64_t plane() const { return plane_; }
  // Of this lane; false where the plane has no such symbol.
  __device__ bool symbol(unsigned lane, std::uint64_t* at) const {
    *at = begin_ + step_ * lanes_ + lane;
    return lane < lanes_ && step_ * lanes_ + lane < length_;
  }

 private:
  const Layout& layout_;
  const DeviceChunk& chunk_;
  std::uint64_t lanes_, plane_, step_ = 0, length_ = 0, begin_ = 0;
};

__global__ void __launch_bounds__(kWarp* kChunksPerBlock)
    encode_kernel(const std::uint8_t* __restrict__ tokens, const std::uint8_t* __restrict__ levels, Layout layout, Coding coding,
                  std::byte* __restrict__ room, std::uint32_t* __restrict__ states, std::uint32_t* __restrict__ word_counts) {
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
  // The next entry is on its way while the state takes in this one. A frequency of 0 marks lanes without a symbol.
  const auto fetch = [&](bool any) -> std::uint32_t {
    std::uint64_t at;
    if (!any || !steps.symbol(lane, &at)) return 0;
    const unsigned slot = slot_of(layout, coding, steps.plane()) + levels[chunk.begin + at];
    return __ldg(coding.tables + __ldg(coding.table_of + slot) * kTokenRoom + tokens[chunk.begin + at]);
  };
  bool any = steps.advance();
  std::uint32_t next = fetch(any);
  while (any) {
    const std::uint32_t entry = next;
    any = steps.advance();
    next = fetch(any);
    const std::uint32_t frequency = entry >> 16;
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
      const std::uint32_t quotient = x / frequency;
      x = (quotient << kProbabilityBits) + (x - quotient * frequency) + (entry & 0xffff);
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

// The context level of symbol i of a plane, from the magnitudes of earlier planes. All but the neighbours were written by this lane.
__device__ unsigned level_before(const Layout& layout, const DeviceChunk& chunk, std::uint64_t p, std::uint64_t i, std::uint64_t length,
                                 const std::uint8_t* magnitudes, std::uint16_t* means) {
  if (layout.blocks) {
    return parent_level(layout, static_cast<unsigned>(p), [&](unsigned k) -> unsigned { return magnitudes[k * chunk.units + i]; });
  }
  if (layout.context == Context::kNone || p == 0) return 0;
  const std::uint8_t* const before = magnitudes + (p - 1) * layout.row + i;
  if (layout.context == Context::kRunning) {
    const unsigned mean = next_mean(p == 1 ? 128U * before[0] : means[i], before[0]);
    means[i] = static_cast<std::uint16_t>(mean);
    return running_level(mean);
  }
  unsigned sum = 2U * before[0];
  if (i > 0) sum += before[-1];
  if (i + 1 < length) sum += before[1];
  return neighbour_level(sum);
}

__device__ bool decode_chunk(const std::byte* payload, const CodedChunk& coded, const Layout& layout, const DeviceChunk& chunk,
                             const Coding& coding, const Values& values, std::uint8_t* magnitudes, std::uint16_t* means, float* y) {
  const unsigned lane = lane_index();
  const unsigned below = (1U << lane) - 1;
  if (coded.word_bytes < 4 * coding.lanes || coded.word_bytes % 2 != 0) return false;
  const auto* in = reinterpret_cast<const std::uint16_t*>(payload + coded.words);
  const auto* const end = in + coded.word_bytes / 2;
  const bool codes = lane < coding.lanes;
  std::uint32_t x = codes ? in[2 * lane] | static_cast<std::uint32_t>(in[2 * lane + 1]) << 16 : kLowestState;
  in += 2 * coding.lanes;
  if (__any_sync(kAllLanes, x < kLowestState)) return false;
  RawBits raw(payload + coded.raw, coded.raw_bytes);
  const std::uint64_t planes = chunk.planes(layout);
  for (std::uint64_t p = 0; p < planes; ++p) {
    const std::uint64_t length = chunk.plane_length(layout, p);
    const std::uint64_t begin = chunk.plane_begin(layout, p);
    const unsigned slot = slot_of(layout, coding, p);
    for (std::uint64_t step = 0; step < length; step += coding.lanes) {
      const std::uint64_t i = step + lane;
      const bool active = codes && i < length;
      unsigned table = 0;
      std::uint32_t entry = 0;
      if (active) {
        const unsigned level = level_before(layout, chunk, p, i, length, magnitudes, means);
        table = __ldg(coding.table_of + slot + level);
        entry = __ldg(coding.tables + (table << kProbabilityBits) + (x & (kProbabilityScale - 1)));
        x = ((entry >> 8 & 0xfff) + 1) * (x >> kProbabilityBits) + (entry >> 20);
      }
      const bool empty = active && x < kLowestState;
      const unsigned readers = __ballot_sync(kAllLanes, empty);
      if (end - in < __popc(readers)) return false;
      if (empty) x = x << 16 | in[__popc(readers & below)];
      in += __popc(readers);

      const auto token = static_cast<std::uint8_t>(entry);
      const bool escapes = active && token >= kFirstEscape;
      float value = active ? __ldg(values.by_token + table * kTokenRoom + token) : 0.0F;
      if (__any_sync(kAllLanes, escapes)) {
        std::uint32_t bits = 0;
        if (!raw.take(escapes ? raw_bits(token) : 0, &bits)) return false;
        if (escapes) {
          const std::int32_t level = escape_base(token) + static_cast<std::int32_t>(bits);
          value = device_level_value(level, is_negative(token), values.shifts + 2 * table, values.step);
        }
      }
      if (active) {
        y[begin + i] = value;
        magnitudes[begin + i] = magnitude_of(token);
      }
    }
    if (layout.context == Context::kNeighbours) __syncwarp();
  }
  return __all_sync(kAllLanes, x == kLowestState) && in == end && raw.over();
}

__global__ void __launch_bounds__(kWarp* kChunksPerBlock)
    decode_kernel(const std::byte* __restrict__ payload, const CodedChunk* __restrict__ chunks, Layout layout, Coding coding, Values values,
                  std::uint8_t* magnitudes, std::uint16_t* means, float* __restrict__ y, std::uint32_t* unsound) {
  const std::uint64_t c = own_chunk();
  if (c >= layout.chunks) return;
  const DeviceChunk chunk(layout, c);
  std::uint16_t* const own_means = means == nullptr ? nullptr : means + c * layout.row;
  if (!decode_chunk(payload, chunks[c], layout, chunk, coding, values, magnitudes + chunk.begin, own_means, y + chunk.begin)) *unsound = 1;
}

unsigned blocks_for(const Layout& layout) { return static_cast<unsigned>((layout.chunks + kChunksPerBlock - 1) / kChunksPerBlock); }

}  // namespace

void encode_chunks(const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout, const Coding& coding, std::byte* room,
                   std::uint32_t* states, std::uint32_t* word_counts, Stream stream) {
  encode_kernel<<<blocks_for(layout), kWarp * kChunksPerBlock, 0, stream>>>(tokens, levels, layout, coding, room, states, word_counts);
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

void decode_chunks(const std::byte* payload, const CodedChunk* chunks, const Layout& layout, const Coding& coding, const Values& values,
                   std::uint8_t* magnitudes, std::uint16_t* means, float* y, std::uint32_t* unsound, Stream stream) {
  decode_kernel<<<blocks_for(layout), kWarp * kChunksPerBlock, 0, stream>>>(payload, chunks, layout, coding, values, magnitudes, means, y,
                                                                            unsound);
  check_launch("decode_chunks");
}

}  // namespace epipe::kernels::cuda
