// Text to train a language model on: files, tokenized once, in blocks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "epipe/base/file.h"
#include "epipe/base/sha256.h"
#include "epipe/data/sources.h"
#include "epipe/data/text/text_files.h"
#include "epipe/data/text/token_dataset.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kDefaultBlock = 512;
constexpr std::int64_t kSmallestBlock = 2;
constexpr std::size_t kHeldOut = 10;  // one tenth of the blocks is for validation

struct TextSettings {
  const Tokenizer& tokenizer;
  std::int32_t end;
  std::int64_t length;
  std::vector<std::string> caches;  // candidate cache folders; the first writable one is used
};

std::string user_cache() {
  if (const char* const folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/') return path_in(folder, "epipe");
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/') return path_in(home, ".cache/epipe");
  return "";
}

std::vector<std::string> cache_folders(const std::string& path, const DataConfig& config) {
  if (!config.cache_dir.empty()) return {config.cache_dir};
  const std::size_t slash = path.find_last_of('/');
  const std::string beside = is_folder(path) ? path : slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::vector<std::string> folders = {path_in(beside, ".epipe-cache")};
  if (const std::string user = user_cache(); !user.empty()) folders.push_back(user);
  return folders;
}

// A key of everything the tokens depend on. Files are identified by size and modification time.
TokenKey key_of(const std::vector<TextFile>& files, const TextSettings& settings) {
  std::string all = fmt::format("tokens 1\n{}\n{}\n{}\n", settings.tokenizer.fingerprint(), settings.end, settings.length);
  for (const TextFile& file : files) all += fmt::format("{} {} {}\n", file.bytes, file.changed, file.path);
  return sha256(std::as_bytes(std::span(all)));
}

std::string cache_name(const TokenKey& key) {
  std::string name;
  for (std::size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", std::to_integer<unsigned>(key[i]));
  return name + ".tokens";
}

// Writes the tokens to the first writable cache folder, for its owner only, as tokens are text; maps them from there.
std::optional<TokenStore> keep(const TokenStore& store, const TokenKey& key, const TextSettings& settings) {
  for (const std::string& folder : settings.caches) {
    const std::string path = path_in(folder, cache_name(key));
    if (!make_private_folders(folder) || !write_token_store(path, key, store)) continue;
    if (auto kept = read_token_store(path, key, settings.tokenizer.vocabulary())) return std::move(kept).value();
  }
  return std::nullopt;
}

TokenStore tokens_of(const std::string& path, const TextSettings& settings, std::vector<std::string>& notes) {
  const auto files = list_text_files(path);
  const TokenKey key = key_of(files, settings);
  for (const std::string& folder : settings.caches) {
    const std::string cache = path_in(folder, cache_name(key));
    if (!exists(cache)) continue;
    auto found = read_token_store(cache, key, settings.tokenizer.vocabulary());
    if (found) return std::move(found).value();
    notes.push_back(fmt::format("{}; the text is tokenized again", found.error().message));
  }
  TokenStore made = tokenize_files(files, settings.tokenizer, settings.end, static_cast<std::size_t>(settings.length));
  if (auto kept = keep(made, key, settings)) return *kept;
  notes.push_back(fmt::format("the tokens of {} are kept in memory only: no folder for their cache can be written", path));
  return made;
}

void note_left_out(const std::string& path, const TokenStore& store, std::int64_t length, std::vector<std::string>& notes) {
  if (store.left_out == 0) return;
  notes.push_back(
      fmt::format("{}: {} samples are left out, because --max-length {} leaves no room for a completion", path, store.left_out, length));
}

struct Split {
  TokenStore store;
  std::size_t first;
  std::size_t last;
};

Split whole(const std::string& path, const TextSettings& settings, std::vector<std::string>& notes) {
  TokenStore store = tokens_of(path, settings, notes);
  note_left_out(path, store, settings.length, notes);
  if (store.samples.empty()) throw std::runtime_error(fmt::format("{} has no text to train on", path));
  const std::size_t count = store.samples.size();
  return {std::move(store), 0, count};
}

std::pair<Split, Split> with_tail(const std::string& path, const TextSettings& settings, std::vector<std::string>& notes) {
  Split train = whole(path, settings, notes);
  const std::size_t count = train.last;
  if (count < 2) {
    throw std::runtime_error(
        fmt::format("{} gives one block of {} tokens, and one more is needed for validation: add text, or use a smaller "
                    "--max-length than {}",
                    path, train.store.samples[0].count, settings.length));
  }
  const std::size_t held = std::max<std::size_t>(1, count / kHeldOut);
  notes.push_back(fmt::format("{} has no val folder: the last {} of {} blocks are held out for validation", path, held, count));
  Split validation{train.store, count - held, count};
  train.last = count - held;
  return {std::move(train), std::move(validation)};
}

std::pair<Split, Split> split_text(const std::string& path, const TextSettings& settings, std::vector<std::string>& notes) {
  for (const char* const name : {"val", "validation"}) {
    const std::string train = path_in(path, "train");
    const std::string validation = path_in(path, name);
    if (is_folder(train) && is_folder(validation)) return {whole(train, settings, notes), whole(validation, settings, notes)};
  }
  return with_tail(path, settings, notes);
}

}  // namespace

Splits open_text(const std::string& path, const DataConfig& config) {
  if (config.tokenizer.empty()) {
    throw std::invalid_argument(
        fmt::format("\"{}\" needs a tokenizer: pass the folder of a tokenizer.json with --tokenizer DIR", config.spec));
  }
  if (!config.bpe.empty())
    throw std::invalid_argument(fmt::format("--bpe has no meaning for the data \"{}\"; use --tokenizer", config.spec));
  const std::int64_t length = config.max_length == 0 ? kDefaultBlock : config.max_length;
  if (length < kSmallestBlock) {
    throw std::invalid_argument(fmt::format("--max-length: expected at least {} tokens, got {}", kSmallestBlock, length));
  }
  const auto tokenizer = value_or_throw(Tokenizer::read(config.tokenizer));
  const auto end = tokenizer.end_of_text();
  if (!end)
    throw std::runtime_error(fmt::format("{} names no end-of-text token: set eos_token in its tokenizer_config.json", config.tokenizer));
  Splits splits;
  auto [train, validation] = split_text(path, {tokenizer, *end, length, cache_folders(path, config)}, splits.notes);
  DataSpec spec{DataSpec::Kind::kText, {length}, tokenizer.vocabulary(), tokenizer.vocabulary()};
  spec.metrics = {"perplexity"};
  spec.next_token = true;
  const auto open = [&](const Split& part) {
    return make_token_dataset(part.store, part.first, part.last, spec, tokenizer.pad().value_or(*end));
  };
  splits.train = open(train);
  splits.validation = open(validation);
  return splits;
}

}  // namespace epipe::data
