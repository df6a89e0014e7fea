#include "epipe/codec/kernels/rans.h"

#include "epipe/codec/kernels/scalar.h"

namespace epipe::kernels {

DecodeTables::DecodeTables(std::span<const Frequencies> tables) : entries_(tables.size() << kProbabilityBits) {
  std::uint32_t* out = entries_.data();
  for (const Frequencies& table : tables) {
    for (std::uint32_t token = 0; token < kTokens; ++token) {
      const std::uint32_t frequency = table[token];
      for (std::uint32_t bias = 0; bias < frequency; ++bias) *out++ = token | (frequency - 1) << 8 | bias << 20;
    }
  }
}

EncodeTables::EncodeTables(std::span<const Frequencies> tables) : entries_(tables.size() * kTokenRoom) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::uint32_t start = 0;
    for (std::size_t token = 0; token < kTokens; ++token) {
      const std::uint32_t frequency = tables[t][token];
      entries_[t * kTokenRoom + token] = frequency << 16 | start;
      start += frequency;
    }
  }
}

RansEncoder start_encoder(unsigned lanes, MutableBytes room) {
  RansEncoder encoder;
  encoder.lanes = lanes;
  encoder.states.fill(kLowestState);
  encoder.out = room.data() + room.size();
  return encoder;
}

bool finished(const RansDecoder& decoder) {
  bool rested = decoder.in == decoder.end;
  for (unsigned lane = 0; lane < decoder.lanes; ++lane) rested &= decoder.states[lane] == kLowestState;
  return rested;
}

namespace scalar_impl {

void encode_tokens_from(std::size_t lane, RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of,
                        const std::uint32_t* tables) {
  for (std::size_t i = tokens.size(); i-- > 0;) {
    const std::uint32_t entry = tables[table_of[i] * kTokenRoom + tokens[i]];
    const std::uint32_t frequency = entry >> 16;
    std::uint32_t& x = encoder.states[(lane + i) % encoder.lanes];
    if (x >> 20 >= frequency) {
      encoder.out -= 2;
      const auto word = static_cast<std::uint16_t>(x);
      std::memcpy(encoder.out, &word, 2);
      x >>= 16;
    }
    x = ((x / frequency) << kProbabilityBits) + x % frequency + (entry & 0xffff);
  }
}

bool decode_tokens_from(std::size_t lane, RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of,
                        const std::uint32_t* tables) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::uint32_t& x = decoder.states[(lane + i) % decoder.lanes];
    const std::uint32_t entry = tables[(std::uint32_t{table_of[i]} << kProbabilityBits) + (x & (kProbabilityScale - 1))];
    tokens[i] = static_cast<std::uint8_t>(entry);
    x = ((entry >> 8 & 0xfff) + 1) * (x >> kProbabilityBits) + (entry >> 20);
    if (x < kLowestState) {
      if (decoder.in == decoder.end) return false;
      std::uint16_t word;
      std::memcpy(&word, decoder.in, 2);
      decoder.in += 2;
      x = x << 16 | word;
    }
  }
  return true;
}

void encode_tokens(RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables) {
  encode_tokens_from(0, encoder, tokens, table_of, tables);
}

bool decode_tokens(RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables) {
  return decode_tokens_from(0, decoder, tokens, table_of, tables);
}

bool decode_two(const TokenRun& a, const TokenRun& b, const std::uint32_t* tables) {
  return decode_tokens(*a.decoder, a.tokens, a.table_of, tables) && decode_tokens(*b.decoder, b.tokens, b.table_of, tables);
}

}  // namespace scalar_impl
}  // namespace epipe::kernels
