#pragma once

#include <cstddef>
#include <cstdint>

#include "epipe/codec/kernels/cuda/layout.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/tokens.h"

// Symbols to tokens, context levels, counts and raw bits. Arrays of symbols hold the whole tensor, chunk after chunk.
namespace epipe::kernels::cuda {

// Sums of squares, one per 2^14 values, and how many values are not zero, in the order of additions that the host uses.
struct BlockSums {
  double energy;
  std::uint64_t nonzero;
};
inline constexpr std::size_t kSumBlock = 1U << 14U;
// And the largest magnitude key of all values.
void sum_blocks(const float* x, std::size_t n, BlockSums* sums, Key* largest, Stream stream);

// Tokens of all symbols, and by chunk the raw bits that their escapes take.
void quantize(const float* y, const Layout& layout, const DeadZone& zone, std::uint8_t* tokens, std::uint32_t* raw_bits, Stream stream);

// Context levels of all symbols, and counts[slot][token], which were zero. slot_of_plane has one entry per plane of blocks.
void find_levels(const std::uint8_t* tokens, const Layout& layout, const std::uint16_t* slot_of_plane, std::uint8_t* levels,
                 std::uint32_t* counts, Stream stream);

// The raw bits, chunk c's from word first_word[c] on, into words that were zero.
void write_raw_bits(const float* y, const std::uint8_t* tokens, const Layout& layout, const DeadZone& zone, const std::uint32_t* bits,
                    const std::uint64_t* first_word, std::uint32_t* words, Stream stream);

// By how much levels exceed |y| / step, in units of 2^-24, apart for levels of 1 and above, and how many there are.
struct Excess {
  std::int64_t sum[2];    // NOLINT(*-avoid-c-arrays): on the device as well
  std::uint64_t count[2];  // NOLINT(*-avoid-c-arrays)
};
inline constexpr std::size_t kMostSlots = 1024;
// Added to excess[slot] for all symbols; exact, in whatever order.
void add_excess(const float* y, const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout,
                const std::uint16_t* slot_of_plane, const DeadZone& zone, std::size_t slots, Excess* excess, Stream stream);

// How tables turn levels into values.
struct ValueTables {
  const std::uint8_t* table_of;  // by slot
  const std::int8_t* shifts;     // two by table, in 1/256 step
  float step;
};

// errors[c] = the sum of squared errors over chunk c, those of coefficients where there is a transform, in an order of its own.
void sum_errors(const float* y, const std::uint8_t* levels, const Layout& layout, const std::uint16_t* slot_of_plane, const DeadZone& zone,
                const ValueTables& tables, double* errors, Stream stream);

}  // namespace epipe::kernels::cuda
