#include "epipe/data/text/token_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "epipe/base/bytes.h"
#include "epipe/base/file.h"
#include "epipe/base/mapped_file.h"

namespace epipe::data {
namespace {

constexpr std::array<char, 8> kStoreMagic = {'E', 'P', 'I', 'P', 'E', 'T', 'O', 'K'};
constexpr std::uint32_t kStoreVersion = 1;

struct StoreHeader {
  std::array<char, 8> magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  std::uint32_t zero = 0;
  TokenKey key{};
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;
  std::uint64_t left_out = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(StoreHeader) == 80, "what follows is aligned to 16 bytes");

// Detects damage, not tampering: the cache folder belongs to the user who trains.
std::uint64_t add_checksum(std::uint64_t sum, ByteView bytes) {
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) sum = std::rotl((sum ^ load<std::uint32_t>(bytes, i)) * 0x9e3779b97f4a7c15U, 29);
  return sum;
}
std::uint64_t checksum_of(const TokenStore& store) {
  return add_checksum(add_checksum(store.left_out, std::as_bytes(store.samples)), std::as_bytes(store.tokens));
}

bool in_bounds(const TokenStore& store, std::int64_t vocabulary) {
  const bool samples = std::all_of(store.samples.begin(), store.samples.end(), [&](const TokenSample& sample) {
    return sample.begin <= store.tokens.size() && sample.count <= store.tokens.size() - sample.begin && sample.prompt <= sample.count;
  });
  return samples && std::all_of(store.tokens.begin(), store.tokens.end(), [&](std::int32_t id) { return id >= 0 && id < vocabulary; });
}

struct Owned {
  TokenIds tokens;
  std::vector<TokenSample> samples;
};

}  // namespace

TokenStore make_token_store(TokenIds tokens, std::vector<TokenSample> samples, std::uint64_t left_out) {
  auto owned = std::make_shared<Owned>(Owned{std::move(tokens), std::move(samples)});
  return {owned->tokens, owned->samples, left_out, owned};
}

Result<TokenStore> read_token_store(const std::string& path, const TokenKey& key, std::int64_t vocabulary) {
  const auto damaged = [&](const char* what) { return bad_file(fmt::format("{} {}", path, what)); };
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const ByteView bytes = file.value()->bytes();
  if (bytes.size() < sizeof(StoreHeader)) return damaged("is too short");
  const auto header = load<StoreHeader>(bytes, 0);
  if (header.magic != kStoreMagic || header.version != kStoreVersion || header.zero != 0) return damaged("is no cache of tokens");
  if (header.key != key) return damaged("is made of other data");
  const std::uint64_t rest = bytes.size() - sizeof(StoreHeader);
  const bool fits = header.samples <= rest / sizeof(TokenSample) && header.tokens <= rest / sizeof(std::int32_t) &&
                    header.samples * sizeof(TokenSample) + header.tokens * sizeof(std::int32_t) == rest;
  if (!fits) return damaged("is not as long as it says");
  const std::byte* const begin = bytes.data() + sizeof(StoreHeader);  // a page's beginning plus 80
  TokenStore store;
  store.samples = {reinterpret_cast<const TokenSample*>(begin), static_cast<std::size_t>(header.samples)};
  store.tokens = {reinterpret_cast<const std::int32_t*>(begin + store.samples.size_bytes()), static_cast<std::size_t>(header.tokens)};
  store.left_out = header.left_out;
  store.memory = file.value();
  if (checksum_of(store) != header.checksum || !in_bounds(store, vocabulary)) return damaged("is damaged");
  return store;
}

Result<void> write_token_store(const std::string& path, const TokenKey& key, const TokenStore& store) {
  StoreHeader header;
  header.key = key;
  header.samples = store.samples.size();
  header.tokens = store.tokens.size();
  header.left_out = store.left_out;
  header.checksum = checksum_of(store);
  return write_private_file(path, {std::as_bytes(std::span(&header, 1)), std::as_bytes(store.samples), std::as_bytes(store.tokens)});
}

}  // namespace epipe::data
