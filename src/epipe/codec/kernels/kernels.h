#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "epipe/base/bytes.h"

// The inner loops of the codecs on plain spans. Each instruction set fills one table with the same functions; all of them
// give the same bits as the scalar one. Codes are packed LSB first, `bits` bits each, without gaps.
namespace epipe::kernels {

// One linear piece of a quantizer: a code's low level bits q stand for fma(q, step, min). On the wire as it is in memory.
struct Run {
  float min;
  float step;
};

// 2^split_bits runs with ascending min; a value belongs to the last run whose min it reaches. Side by side for fast look-up.
class RunTable {
 public:
  RunTable(std::span<const Run> runs, unsigned level_bits);

  std::span<const float> mins() const { return mins_; }
  std::span<const float> steps() const { return steps_; }
  std::span<const float> divisors() const { return divisors_; }  // the steps, with 1 in place of 0
  unsigned level_bits() const { return level_bits_; }
  unsigned split_bits() const { return split_bits_; }
  unsigned bits() const { return level_bits_ + split_bits_; }

 private:
  std::vector<float> mins_;
  std::vector<float> steps_;
  std::vector<float> divisors_;
  unsigned level_bits_;
  unsigned split_bits_;
};

// Integers in the order of the floats they came from (-0 before +0; NaN and Inf at the ends).
using Key = std::int32_t;
enum class KeyOf : std::uint8_t { kValue, kMagnitude };

struct KeyRange {
  Key min;
  Key max;
};

// An open interval of keys in which an order statistic is expected, and what a pass over the tensor finds around and in it.
struct Bracket {
  Key low;
  Key high;               // low <= high
  std::span<Key> inside;  // room for the keys strictly between low and high
  std::size_t inside_count = 0;
  std::uint64_t below_low = 0;  // keys < low
  std::uint64_t upto_low = 0;   // keys <= low
  std::uint64_t upto_high = 0;  // keys <= high
};
inline constexpr std::size_t kMaxBrackets = 8;

struct BracketScan {
  KeyRange range;
  bool fits;
};

struct EnergySum {
  double energy = 0;
  std::uint64_t nonzero = 0;
};

struct DeadZone;
struct BlockTransform;
struct ChannelMatrix;
struct ReflectionRows;
struct RansEncoder;
struct RansDecoder;
struct ParentPlanes;
class BitWriter;
class BitReader;
struct TokenRun;

struct Kernels {
  std::string_view name;  // "scalar", "avx2", "avx512"

  // Smallest and largest key; x must not be empty.
  KeyRange (*key_range)(std::span<const float> x, KeyOf of);

  // Sixteen interleaved float64 sums of squares, added up from the first to the last, and how many values are not 0.
  EnergySum (*energy)(std::span<const float> x);

  // Floats to bytes and back, as they are or as 16-bit floats. False when a value is NaN or Inf, or rounds to Inf.
  bool (*store_fp32)(std::span<const float> x, MutableBytes out);
  bool (*load_fp32)(ByteView in, std::span<float> out);
  bool (*store_fp16)(std::span<const float> x, MutableBytes out);
  bool (*load_fp16)(ByteView in, std::span<float> out);
  bool (*store_bf16)(std::span<const float> x, MutableBytes out);
  bool (*load_bf16)(ByteView in, std::span<float> out);

  // Finite values to packed codes and back. `out` and `in` hold packed_bytes(x.size(), runs.bits()) bytes.
  void (*encode_runs)(std::span<const float> x, const RunTable& runs, MutableBytes out);
  void (*decode_runs)(ByteView in, const RunTable& runs, std::span<float> out);

  // code = the number of thresholds[1...] that x reaches; thresholds holds 2^bits ascending values, the first is ignored. `out` holds
  // packed_bytes(x.size(), bits) bytes and no more: all of them may be written.
  void (*encode_search)(std::span<const float> x, std::span<const float> thresholds, unsigned bits, MutableBytes out);
  // x' = table[code]; codes beyond the table give its last entry.
  void (*decode_table)(ByteView in, std::span<const float> table, unsigned bits, std::span<float> out);

  // One pass over a tensor that is not empty: its key range, and counts and keys for 1 to kMaxBrackets brackets, added to
  // what they hold. Gives up, with fits = false, when one has fewer than 64 places left for keys inside.
  BracketScan (*scan_brackets)(std::span<const float> x, KeyOf of, std::span<Bracket> brackets);

  // kBatch blocks at once: value k of block g is in[k * in_stride + g]; k counts along the width first. `out` may not be `in`.
  void (*transform_blocks)(const BlockTransform& t, const float* in, std::size_t in_stride, float* out, std::size_t out_stride);
  // Combinations of the channels of `places` places: channel c of place p is in[c * in_stride + p]. `out` may not be `in`.
  void (*multiply_channels)(const ChannelMatrix& by, const float* in, std::size_t in_stride, std::size_t places, float* out,
                            std::size_t out_stride);
  // One row of reflections.length values, reflected by all of them, from the first to the last or backwards.
  void (*reflect)(const ReflectionRows& reflections, bool backwards, float* row);
  // Finite values to tokens; no level may exceed kMaxLevel.
  void (*quantize)(std::span<const float> y, const DeadZone& zone, std::uint8_t* tokens);
  // out[i] = values[table_of[i] * kTokenRoom + tokens[i]].
  void (*look_up)(std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const float* values, float* out);
  // Magnitudes of tokens, and the context levels they give (contexts.h). running_levels() first updates the means, sixteenths times
  // eight, with the magnitudes of the row before; neighbour_levels() takes each magnitude twice and its two neighbours once.
  void (*magnitudes_of)(std::span<const std::uint8_t> tokens, std::uint8_t* out);
  void (*parent_levels)(const ParentPlanes& parents, std::size_t n, std::uint8_t* out);
  void (*running_levels)(const std::uint8_t* before, std::size_t n, std::uint16_t* means, std::uint8_t* out);
  void (*neighbour_levels)(const std::uint8_t* before, std::size_t n, std::uint8_t* out);
  // out[i] = map[in[i]], which is below 16. `out` may be `in`.
  void (*map_bytes)(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out);
  // Token i by table table_of[i]. Decoding is false when the words run out; it needs one table entry per slot, so any words decode.
  void (*encode_tokens)(RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of,
                        const std::uint32_t* tables);
  bool (*decode_tokens)(RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables);
  // Both runs, of different decoders, as decode_tokens() does one after the other; together they wait less for their states.
  bool (*decode_two)(const TokenRun& a, const TokenRun& b, const std::uint32_t* tables);
  // The raw bits of the tokens that have some, from the values they were made of; three bytes per token always suffice.
  void (*write_raw)(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, BitWriter& out);
  // And back: y[i], which holds what to take off |q| in steps, becomes the value. False when the bits run out.
  bool (*read_raw)(std::span<const std::uint8_t> tokens, float step, BitReader& in, float* y);
};

const Kernels& scalar();
const Kernels* avx2();    // null where this CPU or this build has none, or EPIPE_CPU keeps below it (base/cpu_level.h)
const Kernels* avx512();  // likewise
const Kernels& best();    // the widest of them

constexpr std::size_t packed_bytes(std::size_t values, unsigned bits) { return (values * bits + 7) / 8; }

}  // namespace epipe::kernels
