#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "epipe/data/text/token_ids.h"
#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

// Lets a map of strings be searched without making a string.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

using TokenTable = TextMap<std::int32_t>;
// The model's {"token": id}. Throws BadTokenizer.
TokenTable read_vocabulary(const Component& model);

// Encodes one word. Any thread may call it.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual void encode(std::string_view word, TokenIds& out) const = 0;  // appends
};

// Byte pairs, or with `byte_level` false pairs of characters, merged by rank.
std::unique_ptr<WordModel> make_bpe_model(const Component& model, const TokenTable& vocabulary, bool byte_level);
// Repeatedly takes the longest matching piece of the vocabulary; gives the unknown token if none matches.
std::unique_ptr<WordModel> make_word_piece_model(const Component& model, const TokenTable& vocabulary);
// BPE or WordPiece by the model's type or, in old files without a type, by its fields. Caches words. Throws BadTokenizer.
std::unique_ptr<WordModel> make_word_model(const Component& model, const TokenTable& vocabulary, bool byte_level);

}  // namespace epipe::data
