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

// A token that stands for its text wherever that occurs, before words are made.
struct AddedToken {
  std::int32_t id;
  std::string text;
  bool special;      // left out by decode() where asked
  bool normalized;   // looked for in normalized text
  bool strip_left;   // takes the white space in front of it
  bool strip_right;  // and behind it
  bool single_word;  // only where no word character stands beside it
};

// The list `added_tokens`. Throws BadTokenizer.
std::vector<AddedToken> read_added_tokens(const Component& list);

// Finds tokens in text: the leftmost, of those the longest. In time proportional to the text times the longest token's length.
class TokenFinder {
 public:
  // Those of the list whose `normalized` is this; `change` is applied to their texts.
  TokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& change);

  using TextSink = std::function<void(std::string_view text)>;
  using TokenSink = std::function<void(std::int32_t id)>;
  // Hands over the tokens found and the text between them, in order; no empty text.
  void split(std::string_view text, const TextSink& between, const TokenSink& token) const;

 private:
  struct Found {
    std::size_t bytes = 0;  // 0: nothing
    const AddedToken* token = nullptr;
  };
  void add(std::string_view text, const AddedToken& token);
  Found find_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};                          // bytes that some token begins with
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // a trie: node * 256 + byte -> node
  std::unordered_map<std::uint32_t, std::size_t> ends_;     // node -> index in tokens_
  std::uint32_t nodes_ = 1;
};

}  // namespace epipe::data
