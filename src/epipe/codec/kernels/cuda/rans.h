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

// What encoding a token takes: its frequency and start, as EncodeTables have them, and a factor that stands for the frequency in divisions.
struct EncodeEntry {
  std::uint32_t frequency_and_start;
  std::uint32_t factor;
};
// Any x / frequency = (t + ((x - t) >> min(p, 1))) >> max(p - 1, 0) with t the upper half of x * factor and p the bits of frequency - 1
// (Granlund and Montgomery).
constexpr EncodeEntry encode_entry(std::uint32_t frequency_and_start) {
  const std::uint32_t frequency = frequency_and_start >> 16;
  if (frequency == 0) return {0, 0};
  const auto power = std::uint64_t{1} << std::bit_width(frequency - 1);
  return {frequency_and_start, static_cast<std::uint32_t>((std::uint64_t{1} << 32) * (power - frequency) / frequency + 1)};
}

// Bytes that encode_chunks() needs for the words of one chunk.
constexpr std::uint64_t words_room(std::uint64_t chunk_symbols) { return (2 * chunk_symbols + 64 + 15) / 16 * 16; }

// states[c * kMaxStates + lane], and word_counts[c] words at the end of chunk c's share of `room`.
void encode_chunks(const std::uint8_t* tokens, const std::uint8_t* levels, const Layout& layout, const Coding& coding,
                   const EncodeEntry* entries, std::byte* room, std::uint32_t* states, std::uint32_t* word_counts, Stream stream);

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
