#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/data/text/token_ids.h"

namespace epipe::data {

// RoBERTa's tokenizer: text -> words -> bytes -> pairs of bytes merged by rank. Bytes that are not UTF-8 are encoded like any others, so
// every text has ids. Any thread may encode; words are cached.
class Bpe {
 public:
  // vocab.json: {"token": id}, every byte's token and <s>, </s>, <pad> among them. merges.txt: "left right" per line, best first.
  static Result<Bpe> parse(ByteView vocab, ByteView merges);
  // DIR/vocab.json and DIR/merges.txt.
  static Result<Bpe> open(const std::string& folder);

  Bpe(Bpe&&) noexcept;
  Bpe& operator=(Bpe&&) noexcept;
  ~Bpe();

  // Appends to `out`, without special tokens.
  void encode(std::string_view text, TokenIds& out) const;

  std::int32_t begin() const;       // <s>
  std::int32_t end() const;         // </s>
  std::int32_t pad() const;         // <pad>
  std::int64_t vocabulary() const;  // ids are below this

 private:
  class Impl;
  explicit Bpe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// <s> a </s>, or with b <s> a </s></s> b </s>. Above max_length (0: no limit), drops tokens from the end of the longer of a and b, of b if
// they are equally long, until it fits.
TokenIds with_special_tokens(const Bpe& bpe, TokenIds a, std::size_t max_length = 0);
TokenIds with_special_tokens(const Bpe& bpe, TokenIds a, TokenIds b, std::size_t max_length = 0);

}  // namespace epipe::data
