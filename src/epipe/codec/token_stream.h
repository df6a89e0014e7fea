#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/token_tables.h"

// Chunks of symbols as tokens, and tokens as bytes.
//
//   chunk:  lanes x u32 state | u16 words          raw bits of large levels travel apart, one stream per chunk
namespace epipe::codec {

// Counts that several increments in flight do not wait for: symbols alternate between two sets. They may be larger than a small tensor,
// so their memory is to be kept for the next one.
class CountedTokens {
 public:
  void reset(std::size_t slots);  // all zero
  void add(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels);
  void add(const CountedTokens& other);
  void total(std::vector<TokenCounts>& all) const;

 private:
  std::array<std::vector<TokenCounts>, 2> sets_;
};

// Warm buffers of one thread.
struct TokenScratch {
  std::vector<std::uint8_t> magnitudes, tokens, table_of;
  Scratch words;
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

// False when the bytes are not those of such a chunk. `y` holds chunk.symbols floats.
bool decode_chunk(const Coding& coding, const Chunk& chunk, ByteView words, ByteView raw, const kernels::DecodeTables& tables,
                  std::span<const float> values, TokenScratch& scratch, std::span<float> y);

}  // namespace epipe::codec
