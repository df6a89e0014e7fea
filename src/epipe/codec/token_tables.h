#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/codec/kernels/rans.h"

// The statistics of an entropy-coded tensor: counts per slot in the encoder, a few frequency tables and a map from slots to them in
// the frame.
namespace epipe::codec {

using TokenCounts = std::array<std::uint32_t, kernels::kTokenRoom>;

// Sums of |q| - |y| / step per slot, apart for |q| = 1 and above, and how many there were.
struct Shift {
  std::array<double, 2> sum{};
  std::array<std::uint64_t, 2> count{};

  void add(const Shift& other) {
    for (std::size_t i = 0; i < 2; ++i) {
      sum[i] += other.sum[i];
      count[i] += other.count[i];
    }
  }
};

// Frequencies as they travel: 0 for a token that does not occur, else quarter octaves, at most kMaxCode.
using FrequencyCodes = std::array<std::uint8_t, kernels::kTokenRoom>;
inline constexpr std::uint8_t kMaxCode = 48;

struct TokenTables {
  std::vector<FrequencyCodes> codes;               // 1 to kMaxTables
  std::vector<kernels::Frequencies> tables;        // follow from the codes
  std::vector<std::uint8_t> table_of;              // by slot
  std::vector<std::array<std::int8_t, 2>> shifts;  // by table, in 1/256 step: what to take off |q| = 1 and off larger ones
};

// A table from its codes, of which at least one is not 0. Integer arithmetic only.
kernels::Frequencies frequencies_of(const FrequencyCodes& codes);

// Bits of the tokens when every slot had the ideal table, raw bits included.
double ideal_bits(std::span<const TokenCounts> counts);
// Bits of the tokens with these tables, raw bits included.
double coded_bits(std::span<const TokenCounts> counts, const TokenTables& tables);

// Slots with alike statistics share a table; as many tables as pay for themselves. `shifts` has one entry per slot.
TokenTables fit_tables(std::span<const TokenCounts> counts, std::span<const Shift> shifts, std::size_t levels);

// Appends the tables, whole bytes. docs/wire_format.md has the layout.
void write_tables(const TokenTables& tables, std::size_t levels, Bytes& out);
// Takes them off the front of `in`.
Result<TokenTables> read_tables(ByteReader& in, std::size_t slots, std::size_t levels);

// What a table's tokens stand for, by table and token, kTokenRoom each; for escapes what to take off |q|, in steps.
std::vector<float> token_values(const TokenTables& tables, float step);

// (|q| - shift) * step with q's sign.
float level_value(std::int32_t magnitude, bool negative, const std::array<std::int8_t, 2>& shifts, float step);

}  // namespace epipe::codec
