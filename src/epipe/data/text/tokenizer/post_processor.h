#pragma once

#include <string>
#include <vector>

#include "epipe/data/text/token_ids.h"
#include "epipe/data/text/tokenizer/component.h"

namespace epipe::data {

// Ids and, of the same size, which of two texts each belongs to, as BERT counts them.
struct Encoding {
  TokenIds ids;
  TokenIds types;
};

// How one text or two become one sequence: where they stand and which special tokens stand around them.
struct Template {
  struct Piece {
    int text = -1;  // 0: the first text, 1: the second; -1: the tokens below
    TokenIds special = {};
    std::int32_t type = 0;
  };
  std::vector<Piece> pieces;

  std::size_t special_tokens() const;
  // Special tokens only where asked for.
  Encoding apply(const std::vector<TokenIds>& texts, bool special) const;
};

// Of TemplateProcessing, BertProcessing, RobertaProcessing; ByteLevel changes no ids, and a Sequence may hold one of the others.
struct PostProcessor {
  Template single = {{{0, {}, 0}}};
  Template pair = {{{0, {}, 0}, {1, {}, 1}}};

  // Whether the special tokens around pairs tell the texts apart by type.
  bool has_types = false;
};
// Throws BadTokenizer.
PostProcessor make_post_processor(const Component& post_processor);

// Drops tokens from the end of the longest text, of the last among equals, until they are at most `most` together.
void truncate_longest_first(std::vector<TokenIds>& texts, std::size_t most);

}  // namespace epipe::data
