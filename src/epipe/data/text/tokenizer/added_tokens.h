#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/tokenizer/normalizer.h"

namespace epipe::data {

// A token that matches its text wherever it occurs, before the text is split into words.
struct AddedToken {
  std::int32_t id;
  std::string text;
  bool special;      // skipped by decode() if asked
  bool normalized;   // searched for in normalized text
  bool strip_left;   // includes the white space before it
  bool strip_right;  // and after it
  bool single_word;  // only if no word character is next to it
};

// The list `added_tokens`. Throws BadTokenizer.
std::vector<AddedToken> read_added_tokens(const Component& list);

// Finds tokens in text: the leftmost, then the longest. Takes time proportional to the text times the longest token's length.
class TokenFinder {
 public:
  // Uses the tokens whose `normalized` has this value; `change` is applied to their texts.
  TokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& change);

  using TextSink = std::function<void(std::string_view text)>;
  using TokenSink = std::function<void(std::int32_t id)>;
  // Passes the tokens found and the text between them to the sinks, in order; no empty text.
  void split(std::string_view text, const TextSink& between, const TokenSink& token) const;

 private:
  struct Found {
    std::size_t bytes = 0;  // 0: nothing
    const AddedToken* token = nullptr;
  };
  void add(std::string_view text, const AddedToken& token);
  Found find_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};                          // the first bytes of tokens
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // a trie: node * 256 + byte -> node
  std::unordered_map<std::uint32_t, std::size_t> ends_;     // node -> index in tokens_
  std::uint32_t nodes_ = 1;
};

}  // namespace epipe::data
