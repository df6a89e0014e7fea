#pragma once

#include <torch/types.h>

#include <random>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/kernels/tokens.h"
#include "epipe/codec/token_stream.h"
#include "epipe/codec/token_tables.h"
#include "epipe/wire/tensor_spec.h"
#include "support/tensors.h"

// Payloads of the entropy codecs that decoders must take though today's encoder does not make them.
namespace epipe::testing {

// Any token is possible in every table, and slots name tables as they like.
inline codec::TokenTables random_tables(std::size_t count, std::size_t slots, std::mt19937& random) {
  codec::TokenTables tables;
  for (std::size_t t = 0; t < count; ++t) {
    codec::FrequencyCodes codes{};
    for (std::size_t token = 0; token < kernels::kTokens; ++token) codes[token] = static_cast<std::uint8_t>(4 + random() % 36);
    tables.codes.push_back(codes);
    tables.tables.push_back(codec::frequencies_of(codes));
    tables.shifts.push_back({static_cast<std::int8_t>(random() % 100), static_cast<std::int8_t>(random() % 100)});
  }
  for (std::size_t s = 0; s < slots; ++s) tables.table_of.push_back(static_cast<std::uint8_t>(random() % count));
  return tables;
}

inline Bytes payload_with(const torch::Tensor& x, const codec::CodedHead& head, std::size_t table_count) {
  const wire::TensorSpec tensor = codec::spec_of(x);
  const codec::Planes planes(tensor, head.form, head.chunk_log2);
  std::mt19937 random(17);
  const codec::TokenTables tables = random_tables(table_count, planes.slots(), random);
  const codec::Coding coding{planes, tables, head.lanes, head.step, kernels::best()};
  const kernels::EncodeTables encode_tables(tables.tables);
  const kernels::DeadZone zone{1 / head.step, 0.5F, 0.5F};
  const std::span<const float> values(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()));
  std::vector<codec::EncodedChunk> chunks(planes.chunks());
  codec::for_chunks(planes, nullptr, [&](std::size_t, std::size_t c, const codec::Chunk& chunk, codec::ChunkScratch& scratch) {
    const auto y = planes.load(chunk, values, coding.kernels, scratch.planes);
    std::vector<std::uint8_t> tokens(chunk.symbols);
    std::vector<std::uint8_t> levels(chunk.symbols);
    codec::tokenize(planes, chunk, y, zone, coding.kernels, tokens.data(), levels.data(), scratch.tokens, nullptr, &chunks[c].raw);
    codec::encode_chunk(coding, chunk, tokens.data(), levels.data(), encode_tables, scratch.tokens, chunks[c].words);
  });
  Bytes out;
  codec::write_coded(head, tables, planes.levels(), chunks, out);
  return out;
}

}  // namespace epipe::testing
