#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/token_tables.h"

// Chunks of symbols as tokens, and tokens as bytes.
//
//   chunk:  lanes x u32 state | u16 words          raw bits of large levels travel apart, one stream per chunk
namespace epipe::codec {

// Counts that several increments in flight do not wait for: symbols take turns between sets, two for small tensors. They may be larger
// than those, so their memory is to be kept for the next one.
class CountedTokens {
 public:
  void reset(std::size_t slots, std::size_t symbols);  // all zero, for about so many symbols
  void add(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels);
  void add(const CountedTokens& other);  // that was reset alike
  void total(std::vector<TokenCounts>& all) const;

 private:
  static constexpr std::size_t kFewestSets = 2;
  static constexpr std::size_t kMostSets = 4;

  template <std::size_t kSets>
  void add_by(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels);

  std::array<std::vector<TokenCounts>, kMostSets> sets_;
  std::size_t used_ = kFewestSets;
};

// Warm buffers of one thread.
struct TokenScratch {
  std::vector<std::uint8_t> magnitudes, tokens, table_of;
  Scratch words, raw;
};

// Tokens and context levels of a chunk, chunk.symbols each. What they count to is added to `counts`, and `raw` gets the raw bits, when
// given.
void tokenize(const Planes& planes, const Chunk& chunk, std::span<const float> y, const kernels::DeadZone& zone,
              const kernels::Kernels& kernels, std::uint8_t* tokens, std::uint8_t* levels, TokenScratch& scratch, CountedTokens* counts,
              Bytes* raw);

// Adds up, per slot, by how much quantized levels exceed the values they stand for. `tokens` and `levels` are what tokenize() gave.
void add_shifts(const Planes& planes, const Chunk& chunk, std::span<const float> y, const kernels::DeadZone& zone,
                const std::uint8_t* tokens, const std::uint8_t* levels, std::vector<Shift>& shifts);

// The sum of (x - x')^2 over the chunk, taken from its values or coefficients.
double squared_error(const Planes& planes, const Chunk& chunk, std::span<const float> y, const kernels::DeadZone& zone,
                     const std::uint8_t* levels, const TokenTables& tables, float step);

// How tokens become bytes, and back: the same for all chunks of a tensor.
struct Coding {
  const Planes& planes;
  const TokenTables& tables;
  unsigned lanes;
  float step;
  const kernels::Kernels& kernels;
};

void encode_chunk(const Coding& coding, const Chunk& chunk, const std::uint8_t* tokens, const std::uint8_t* levels,
                  const kernels::EncodeTables& tables, TokenScratch& scratch, Bytes& out);

struct ChunkSource {
  Chunk chunk;
  ByteView words, raw;
};

// A chunk on its way from bytes to symbols, plane after plane. `scratch` is its own meanwhile; `y` holds chunk.symbols floats.
class ChunkDecoder {
 public:
  ChunkDecoder(const Coding& coding, const ChunkSource& from, TokenScratch& scratch, std::span<float> y);

  bool sound() const { return sound_; }  // so far
  std::size_t planes() const { return coding_.planes.plane_count(chunk_); }
  const kernels::Kernels& kernels() const { return coding_.kernels; }
  // The tokens of the next plane, yet to be decoded, and their tables.
  kernels::TokenRun start_plane(std::size_t index);
  // Its tokens as floats. False when the raw bits run out.
  bool finish_plane(std::span<const float> values);
  // Whether nothing is left.
  bool finished() const { return kernels::finished(decoder_) && bits_.available() < 8; }

 private:
  const Coding& coding_;
  Chunk chunk_;
  TokenScratch& scratch_;
  std::span<float> y_;
  ContextModel context_;
  kernels::BitReader bits_;
  kernels::RansDecoder decoder_;
  Plane plane_{};
  bool sound_ = true;
};

// False when the bytes are not those of such a chunk. `values` are token_values().
bool decode_chunk(ChunkDecoder& chunk, const kernels::DecodeTables& tables, std::span<const float> values);
// Two chunks at once, which takes less time than one after the other.
bool decode_two_chunks(ChunkDecoder& a, ChunkDecoder& b, const kernels::DecodeTables& tables, std::span<const float> values);

}  // namespace epipe::codec
