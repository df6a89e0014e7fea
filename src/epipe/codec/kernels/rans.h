#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/codec/kernels/tokens.h"

// Interleaved range coding with asymmetric numeral systems (rANS). Symbol i of a run of symbols belongs to state i mod lanes; each
// state is 32 bits wide and is refilled 16 bits at a time. The words lie in the order in which a decoder takes them when it advances
// lane after lane, so a vector register or a warp takes those of all its lanes from consecutive places.
//
//   decode   s = table[x mod 2^12];  x = s.frequency * (x >> 12) + (x mod 2^12) - s.start;  if x < 2^16: x = x << 16 | next word
//   encode   the same backwards: last symbol first, words from the end of the buffer to its start
namespace epipe::kernels {

inline constexpr unsigned kProbabilityBits = 12;
inline constexpr std::uint32_t kProbabilityScale = 1U << kProbabilityBits;
inline constexpr std::uint32_t kLowestState = 1U << 16;
inline constexpr std::size_t kMaxStates = 32;
inline constexpr std::size_t kMaxTables = 64;

using Frequencies = std::array<std::uint16_t, kTokenRoom>;  // of one table; their sum is kProbabilityScale

// Look-up by the low 12 bits of a state: token | frequency - 1, 12 bits | distance from the token's start, 12 bits.
class DecodeTables {
 public:
  explicit DecodeTables(std::span<const Frequencies> tables);
  const std::uint32_t* data() const { return entries_.data(); }

 private:
  std::vector<std::uint32_t> entries_;  // [table][slot]
};

// By token: frequency << 16 | start.
class EncodeTables {
 public:
  explicit EncodeTables(std::span<const Frequencies> tables);
  const std::uint32_t* data() const { return entries_.data(); }

 private:
  std::vector<std::uint32_t> entries_;  // [table][token]
};

struct RansEncoder {
  unsigned lanes = kMaxStates;  // a power of two
  std::array<std::uint32_t, kMaxStates> states{};
  std::byte* out = nullptr;  // the next word goes before this place; one word per symbol and 32 bytes more must fit
};

struct RansDecoder {
  unsigned lanes = kMaxStates;
  std::array<std::uint32_t, kMaxStates> states{};  // each at least kLowestState
  const std::byte* in = nullptr;
  const std::byte* end = nullptr;
};

// Symbols in a row, each with its table.
struct TokenRun {
  RansDecoder* decoder;
  std::span<std::uint8_t> tokens;
  const std::uint8_t* table_of;
};

RansEncoder start_encoder(unsigned lanes, MutableBytes room);

// True when every state is back at the start and no word is left: the symbols are those that were encoded.
bool finished(const RansDecoder& decoder);

}  // namespace epipe::kernels
