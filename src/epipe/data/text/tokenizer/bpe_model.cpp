#include <fmt/format.h>

#include <array>
#include <optional>

#include "epipe/base/printable.h"
#include "epipe/data/text/merge.h"
#include "epipe/data/text/tokenizer/byte_names.h"
#include "epipe/data/text/tokenizer/word_model.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::int32_t kNoToken = -1;

// The initial tokens of a word, before any are merged.
struct Alphabet {
  std::array<std::int32_t, 256> bytes{};                    // byte level
  std::unordered_map<char32_t, std::int32_t> characters{};  // otherwise
  std::int32_t unknown = kNoToken;                          // kNoToken: characters outside the alphabet are left out
  bool fuse_unknown = false;                                // adjacent unknown ones become one
};

class BpeModel final : public WordModel {
 public:
  BpeModel(MergeTable merges, Alphabet alphabet, bool byte_level, TokenTable whole)
      : merges_(std::move(merges)), alphabet_(std::move(alphabet)), byte_level_(byte_level), whole_(std::move(whole)) {}

  void encode(std::string_view word, TokenIds& out) const override {
    if (const auto found = whole_.find(word); found != whole_.end()) {
      out.push_back(found->second);
      return;
    }
    TokenIds tokens;
    tokens.reserve(word.size());
    while (!word.empty()) {
      const std::size_t bytes = byte_level_ ? 1 : first_code_point(word).bytes;
      add(token_of(word.substr(0, bytes)), tokens);
      word.remove_prefix(bytes);
    }
    merge_tokens(merges_, tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

 private:
  std::int32_t token_of(std::string_view symbol) const {
    if (byte_level_) return alphabet_.bytes[static_cast<unsigned char>(symbol[0])];
    const auto found = alphabet_.characters.find(first_code_point(symbol).value);
    return found == alphabet_.characters.end() ? kNoToken : found->second;
  }
  void add(std::int32_t token, TokenIds& tokens) const {
    if (token == kNoToken) token = alphabet_.unknown;
    if (token == kNoToken) return;
    const bool fused = alphabet_.fuse_unknown && token == alphabet_.unknown && !tokens.empty() && tokens.back() == token;
    if (!fused) tokens.push_back(token);
  }

  MergeTable merges_;
  Alphabet alphabet_;
  bool byte_level_;
  TokenTable whole_;  // words that are whole tokens, whatever the merges; by their bytes
};

std::int32_t id_in(const TokenTable& vocabulary, std::string_view token, const Component& asking) {
  const auto found = vocabulary.find(token);
  if (found == vocabulary.end()) asking.fail(fmt::format("the vocabulary has no token \"{}\"", printable(token, 80)));
  return found->second;
}

// "a b", or in newer files ["a", "b"].
std::array<std::string, 2> pair_of(const Component& merge) {
  if (merge.value().is_array()) {
    if (merge.value().size() != 2) merge.fail("expected two tokens");
    const auto both = merge.list();
    return {both[0].text(), both[1].text()};
  }
  const std::string text = merge.text();
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
    merge.fail(fmt::format("expected two tokens with a blank between them, got \"{}\"", printable(text, 80)));
  }
  return {text.substr(0, blank), text.substr(blank + 1)};
}

MergeTable read_merges(const Component& model, const TokenTable& vocabulary) {
  MergeTable table;
  std::uint32_t rank = 0;
  for (const Component& merge : model.list("merges")) {
    const auto [left, right] = pair_of(merge);
    table.add(id_in(vocabulary, left, merge), id_in(vocabulary, right, merge), {rank++, id_in(vocabulary, left + right, merge)});
  }
  return table;
}

Alphabet make_alphabet(const Component& model, const TokenTable& vocabulary) {
  Alphabet alphabet;
  alphabet.bytes.fill(kNoToken);
  for (std::size_t byte = 0; byte < alphabet.bytes.size(); ++byte) {
    if (const auto found = vocabulary.find(byte_names()[byte]); found != vocabulary.end()) alphabet.bytes[byte] = found->second;
  }
  for (const auto& [token, id] : vocabulary) {
    if (!token.empty() && first_code_point(token).bytes == token.size()) alphabet.characters[first_code_point(token).value] = id;
  }
  if (model.has("unk_token")) alphabet.unknown = id_in(vocabulary, model.at("unk_token").text(), model.at("unk_token"));
  alphabet.fuse_unknown = model.flag("fuse_unk", false);
  return alphabet;
}

void refuse_what_is_missing(const Component& model) {
  if (model.has("dropout") && model.at("dropout").value() != 0.0) model.at("dropout").fail("dropout of merges is not supported");
  if (model.flag("byte_fallback", false)) model.at("byte_fallback").fail("byte_fallback (SentencePiece's BPE) is not supported");
  for (const char* const name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(name, "").empty()) model.at(name).fail("is not supported for BPE; expected none");
  }
}

// Words by their bytes.
TokenTable whole_words(const TokenTable& vocabulary, bool byte_level) {
  if (!byte_level) return vocabulary;
  TokenTable words;
  std::string bytes;
  for (const auto& [token, id] : vocabulary) {
    if (bytes_of_names(token, bytes)) words.emplace(bytes, id);
  }
  return words;
}

}  // namespace

std::unique_ptr<WordModel> make_bpe_model(const Component& model, const TokenTable& vocabulary, bool byte_level) {
  refuse_what_is_missing(model);
  TokenTable whole = model.flag("ignore_merges", false) ? whole_words(vocabulary, byte_level) : TokenTable();
  return std::make_unique<BpeModel>(read_merges(model, vocabulary), make_alphabet(model, vocabulary), byte_level, std::move(whole));
}

}  // namespace epipe::data
