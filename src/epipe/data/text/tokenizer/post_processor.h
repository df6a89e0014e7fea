#pragma once

#include <string>
#include <vector>

#include "epipe/data/text/token_ids.h"
#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

// Ids and, for each, which of two texts it belongs to (BERT's token types).
struct Encoding {
  TokenIds ids;
  TokenIds types;
};

// How one text or two become one sequence: their order and the special tokens around them.
struct Template {
  struct Piece {
    int text = -1;  // 0: the first text, 1: the second; -1: the tokens below
    TokenIds special = {};
    std::int32_t type = 0;
  };
  std::vector<Piece> pieces;

  std::size_t special_tokens() const;
  // Adds special tokens only if `special`.
  Encoding apply(const std::vector<TokenIds>& texts, bool special) const;
};

// TemplateProcessing, BertProcessing or RobertaProcessing; ByteLevel changes no ids, and a Sequence may contain one of the others.
struct PostProcessor {
  Template single = {{{0, {}, 0}}};
  Template pair = {{{0, {}, 0}, {1, {}, 1}}};

  // Whether the pair template gives the two texts different types.
  bool has_types = false;
};
// Throws BadTokenizer.
PostProcessor make_post_processor(const Component& post_processor);

// Drops tokens from the end of the longest text, of the last among equals, until at most `most` are left in total.
void truncate_longest_first(std::vector<TokenIds>& texts, std::size_t most);

}  // namespace epipe::data
