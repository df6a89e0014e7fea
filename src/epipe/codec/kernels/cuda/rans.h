#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "epipe/codec/kernels/cuda/layout.h"
#include "epipe/codec/kernels/rans.h"

// rANS on the device: a warp per chunk, a lane per state.
namespace epipe::kernels::cuda {

// What both directions know.
struct Coding {
  const std::uint16_t* slot_of_plane;  // of blocks
  const std::uint8_t* table_of;        // by slot
  unsigned lanes;
};

// What encoding a token takes, so that a state x goes on as x + bias + (4096 - frequency) * q with q = x / frequency:
//   word    frequency, 13 bits | bias, 13 bits: the token's start | shift, 5 bits
//   factor  q = (t + (x - t) / 2) >> shift with t the upper half of x * factor (Granlund and Montgomery)
// A frequency of 1 has q = x - 1 instead, and 4095 more in its bias.
struct EncodeEntry {
  static constexpr unsigned kBiasAt = 5;
  static constexpr unsigned kFrequencyAt = 18;
  static constexpr std::uint32_t kBiasMask = 0x1fff;

  std::uint32_t word;
  std::uint32_t factor;
};
// Leaves every state as it is, and never full.
inline constexpr EncodeEntry kNoEntry{0x1fffU << EncodeEntry::kFrequencyAt | 31, 0};

constexpr EncodeEntry encode_entry(std::uint32_t frequency_and_start) {
  const std::uint32_t frequency = frequency_and_start >> 16;
  if (frequency == 0) return kNoEntry;
  const bool one = frequency == 1;
  const auto bits = static_cast<unsigned>(std::bit_width(frequency - 1));
  const std::uint32_t bias = (frequency_and_start & 0xffff) + (one ? kProbabilityScale - 1 : 0);
  const std::uint32_t word = frequency << EncodeEntry::kFrequencyAt | bias << EncodeEntry::kBiasAt | (one ? 0 : bits - 1);
  if (one) return {word, 0xffffffffU};
  return {word, static_cast<std::uint32_t>((std::uint64_t{1} << 32) * ((std::uint64_t{1} << bits) - frequency) / frequency + 1)};
}

// Bytes that encode_chunks() needs for the words of one chunk.
constexpr std::uint64_t words_room(std::uint64_t chunk_symbols) { return (2 * chunk_symbols + 64 + 15) / 16 * 16; }

// What tokens take, by table, and which table a slot has.
struct EncodeIndex {
  const EncodeEntry* entries;    // [table][kTokenRoom]
  const std::uint8_t* table_of;  // [slot]
  unsigned tables, slots;
};

// states[c * kMaxStates + lane], and word_counts[c] words at the end of chunk c's share of `room`.
void encode_chunks(const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout, const std::uint16_t* slot_of_plane,
                   unsigned lanes, const EncodeIndex& index, std::byte* room, std::uint32_t* states, std::uint32_t* word_counts,
                   Stream stream);

// Chunk c as it travels, states and words, from byte offsets[c] of `out` on. Offsets are even.
void gather_words(const std::byte* room, const std::uint32_t* states, const std::uint32_t* word_counts, const Layout& layout,
                  unsigned lanes, const std::uint64_t* offsets, std::byte* out, Stream stream);
// sizes[c] bytes from word first_word[c] of `words` on, to byte offsets[c] of `out`.
void gather_raw(const std::uint32_t* words, const std::uint64_t* first_word, const std::uint32_t* sizes, const std::uint64_t* offsets,
                std::size_t chunks, std::byte* out, Stream stream);

// Where a chunk lies in a payload.
struct CodedChunk {
  std::uint64_t words, raw;  // bytes from the payload's start; words are at an even one
  std::uint32_t word_bytes, raw_bytes;
};

// What taking a token out of a state takes, and the float that it stands for where it is no escape.
struct TokenEntry {
  std::uint32_t frequency_and_start;  // as EncodeTables have them
  float value;
};

// Finds a state's token.
struct TokenIndex {
  const std::uint8_t* token_of;  // [table][kProbabilityScale]: by slot
  const TokenEntry* entries;     // [table][kTokenRoom]
  unsigned tables;

  static constexpr unsigned kTableBytes = kProbabilityScale + kTokenRoom * sizeof(TokenEntry);
};

// The floats that escapes stand for.
struct Escapes {
  const std::int8_t* shifts;  // two by table
  float step;
};

// All symbols, and *unsound = 1 when a chunk does not hold them; it is not cleared. `magnitudes` has a byte per symbol, `means` chunks *
// row places where the context is running, else it is null.
void decode_chunks(const std::byte* payload, const CodedChunk* chunks, const Layout& layout, const Coding& coding, const TokenIndex& index,
                   const Escapes& escapes, std::uint8_t* magnitudes, std::uint16_t* means, float* y, std::uint32_t* unsound, Stream stream);

}  // namespace epipe::kernels::cuda
