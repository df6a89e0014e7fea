#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/data/text/token_ids.h"

namespace epipe::data {

// A row of tokens to train on. The first `prompt` tokens are not predicted.
struct TokenSample {
  std::uint64_t begin;  // in the tokens of the store
  std::uint32_t count;
  std::uint32_t prompt;
};
static_assert(sizeof(TokenSample) == 16, "written to the cache as it is");

// Tokenized text: in memory, or in a mapped cache file.
struct TokenStore {
  std::span<const std::int32_t> tokens;
  std::span<const TokenSample> samples;
  std::uint64_t left_out = 0;          // samples whose prompt leaves no room for a completion
  std::shared_ptr<const void> memory;  // the memory of the spans; shared by the data sets that read it
};
TokenStore make_token_store(TokenIds tokens, std::vector<TokenSample> samples, std::uint64_t left_out);

// The cache file, all numbers little-endian:
//
//   8 bytes "EPIPETOK"   u32 version   u32 0   32 bytes key   u64 samples   u64 tokens   u64 left out   u64 checksum of the rest
//   samples: u64 begin, u32 count, u32 prompt         tokens: i32
//
// An error if the file is missing, damaged, made for another key, or has ids that are not below `vocabulary`.
using TokenKey = std::array<std::byte, 32>;
Result<TokenStore> read_token_store(const std::string& path, const TokenKey& key, std::int64_t vocabulary);
// Replaces the file in one step.
Result<void> write_token_store(const std::string& path, const TokenKey& key, const TokenStore& store);

}  // namespace epipe::data
