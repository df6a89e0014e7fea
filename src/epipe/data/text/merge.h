#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace epipe::data {

// Which token a pair of tokens is merged into; the lowest rank is merged first.
struct Merge {
  std::uint32_t rank;
  std::int32_t token;
};

class MergeTable {
 public:
  void add(std::int32_t left, std::int32_t right, Merge merge) { merges_.try_emplace(key(left, right), merge); }
  // Null if the two are not merged.
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

 private:
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::unordered_map<std::uint64_t, Merge> merges_;
};

// Merges neighbours, lowest rank first and leftmost first among equals, until no pair is in the table. A word may be as long as the text:
// n log n for n tokens, and in proportion to n where the candidates of a rank come from left to right, as in a letter that is repeated.
void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens);

}  // namespace epipe::data
