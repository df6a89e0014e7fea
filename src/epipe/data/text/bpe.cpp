#include "epipe/data/text/bpe.h"

#include <fmt/format.h>

#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>

#include "epipe/base/file.h"
#include "epipe/data/text/merge.h"
#include "epipe/data/text/tokenizer/byte_names.h"
#include "epipe/data/text/words.h"

namespace epipe::data {
namespace {

using nlohmann::json;
using Vocabulary = std::unordered_map<std::string, std::int32_t>;

constexpr std::uint64_t kMaxBpeBytes = std::uint64_t{1} << 28;
constexpr std::size_t kMaxVocabulary = std::size_t{1} << 24;
constexpr std::size_t kMaxCachedWords = std::size_t{1} << 20;
constexpr std::size_t kMaxCachedBytes = 64;  // per word

std::string_view text_of(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Result<Vocabulary> parse_vocabulary(std::string_view text) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return bad_file("expected vocab.json to hold one JSON object of token: id");
  Vocabulary vocabulary;
  for (const auto& [token, id] : all.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMaxVocabulary)
      return bad_file(fmt::format("expected an id below {} for the token \"{}\" in vocab.json", kMaxVocabulary, token));
    vocabulary[token] = id.get<std::int32_t>();
  }
  return vocabulary;
}

Result<std::int32_t> id_of(const Vocabulary& vocabulary, const std::string& token) {
  const auto found = vocabulary.find(token);
  if (found == vocabulary.end()) return bad_file(fmt::format("vocab.json has no token \"{}\"", token));
  return found->second;
}

Result<MergeTable> parse_merges(std::string_view text, const Vocabulary& vocabulary) {
  MergeTable table;
  std::uint32_t rank = 0;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    std::string_view pair = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (pair.ends_with('\r')) pair.remove_suffix(1);
    if (pair.empty() || (line == 1 && pair.starts_with("#version"))) continue;
    const std::size_t blank = pair.find(' ');
    if (blank == std::string_view::npos) return bad_file(fmt::format("line {} of merges.txt: expected two tokens, got \"{}\"", line, pair));
    const std::string left(pair.substr(0, blank));
    const std::string right(pair.substr(blank + 1));
    std::array<std::int32_t, 3> ids{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = id_of(vocabulary, i == 0 ? left : i == 1 ? right : left + right);
      if (!id) return bad_file(fmt::format("line {} of merges.txt: {}", line, id.error().message));
      ids[i] = id.value();
    }
    table.add(ids[0], ids[1], {rank++, ids[2]});
  }
  return table;
}

}  // namespace

class Bpe::Impl {
 public:
  void encode_word(std::string_view word, TokenIds& out) const {
    const bool cached = word.size() <= kMaxCachedBytes;
    if (cached && recall(word, out)) return;
    TokenIds tokens;
    for (const char byte : word) tokens.push_back(bytes[static_cast<unsigned char>(byte)]);
    merge_tokens(merges, tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
    if (cached) remember(word, tokens);
  }

  std::array<std::int32_t, 256> bytes{};
  MergeTable merges;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t pad = 0;
  std::int64_t vocabulary = 0;

 private:
  bool recall(std::string_view word, TokenIds& out) const {
    const std::shared_lock lock(mutex_);
    const auto found = words_.find(std::string(word));
    if (found == words_.end()) return false;
    out.insert(out.end(), found->second.begin(), found->second.end());
    return true;
  }
  void remember(std::string_view word, const TokenIds& tokens) const {
    const std::unique_lock lock(mutex_);
    if (words_.size() < kMaxCachedWords) words_.try_emplace(std::string(word), tokens);
  }

  mutable std::shared_mutex mutex_;
  mutable std::unordered_map<std::string, TokenIds> words_;  // guarded by mutex_
};

Bpe::Bpe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bpe::Bpe(Bpe&&) noexcept = default;
Bpe& Bpe::operator=(Bpe&&) noexcept = default;
Bpe::~Bpe() = default;

Result<Bpe> Bpe::parse(ByteView vocab, ByteView merges) {
  const auto vocabulary = parse_vocabulary(text_of(vocab));
  if (!vocabulary) return vocabulary.error();
  auto table = parse_merges(text_of(merges), vocabulary.value());
  if (!table) return table.error();
  auto impl = std::make_unique<Impl>();
  impl->merges = std::move(table).value();
  std::vector<std::pair<std::string, std::int32_t*>> needed = {{"<s>", &impl->begin}, {"</s>", &impl->end}, {"<pad>", &impl->pad}};
  const auto& names = byte_names();
  for (std::size_t i = 0; i < names.size(); ++i) needed.emplace_back(names[i], &impl->bytes[i]);
  for (const auto& [token, id] : needed) {
    const auto found = id_of(vocabulary.value(), token);
    if (!found) return found.error();
    *id = found.value();
  }
  for (const auto& [token, id] : vocabulary.value()) impl->vocabulary = std::max<std::int64_t>(impl->vocabulary, id + 1);
  return Bpe(std::move(impl));
}

Result<Bpe> Bpe::open(const std::string& folder) {
  const auto vocab = read_file(folder + "/vocab.json", kMaxBpeBytes);
  if (!vocab) return vocab.error();
  const auto merges = read_file(folder + "/merges.txt", kMaxBpeBytes);
  if (!merges) return merges.error();
  auto bpe = parse(vocab.value(), merges.value());
  if (!bpe) return Error{bpe.error().code, fmt::format("{}: {}", folder, bpe.error().message)};
  return bpe;
}

void Bpe::encode(std::string_view text, TokenIds& out) const {
  while (!text.empty()) impl_->encode_word(take_word(text), out);
}

std::int32_t Bpe::begin() const { return impl_->begin; }
std::int32_t Bpe::end() const { return impl_->end; }
std::int32_t Bpe::pad() const { return impl_->pad; }
std::int64_t Bpe::vocabulary() const { return impl_->vocabulary; }

TokenIds with_special_tokens(const Bpe& bpe, TokenIds a, std::size_t max_length) {
  constexpr std::size_t kSpecial = 2;
  if (max_length != 0 && a.size() + kSpecial > max_length) a.resize(std::max(max_length, kSpecial) - kSpecial);
  a.insert(a.begin(), bpe.begin());
  a.push_back(bpe.end());
  return a;
}

TokenIds with_special_tokens(const Bpe& bpe, TokenIds a, TokenIds b, std::size_t max_length) {
  constexpr std::size_t kSpecial = 4;
  const std::size_t room = std::max(max_length, kSpecial) - kSpecial;
  while (max_length != 0 && a.size() + b.size() > room) (a.size() > b.size() ? a : b).pop_back();
  TokenIds all = with_special_tokens(bpe, std::move(a));
  all.push_back(bpe.end());
  all.insert(all.end(), b.begin(), b.end());
  all.push_back(bpe.end());
  return all;
}

}  // namespace epipe::data
