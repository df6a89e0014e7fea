#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/data/text/token_ids.h"
#include "epipe/data/text/tokenizer/post_processor.h"

namespace epipe::data {

// Hugging Face's tokenizer.json: WordPiece, and BPE over bytes or characters. A component that epipe lacks is an error that names it.
// `truncation` and `padding` in the file are ignored: the data set handles lengths. Any thread may encode and decode.
class Tokenizer {
 public:
  // A folder with tokenizer.json and optionally tokenizer_config.json, or the path of tokenizer.json.
  static Result<Tokenizer> read(const std::string& path);
  // The contents of the two files; the second may be empty.
  static Result<Tokenizer> parse(std::string_view tokenizer, std::string_view config);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text; with `special`, surrounded by the file's special tokens. Errors: the text is not UTF-8, or a pattern of the file
  // exceeds its time limit on it. Special tokens written in the text become their ids, as in Hugging Face.
  Result<TokenIds> encode(std::string_view text, bool special = false) const;
  // One text or two, combined by the file's template. Above max_length (0: no limit), drops tokens from the end of the longer text, of the
  // second if they are equally long.
  Result<Encoding> encode_texts(const std::vector<std::string_view>& texts, bool special, std::size_t max_length = 0) const;
  // UTF-8, with U+FFFD for invalid bytes. Skips ids that are not tokens, and special tokens if asked.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  std::int64_t vocabulary() const;  // ids are below this
  std::optional<std::int32_t> token_id(std::string_view token) const;
  // From tokenizer_config.json, otherwise by the usual names.
  std::optional<std::int32_t> end_of_text() const;
  std::optional<std::int32_t> pad() const;
  // Whether pairs are distinguished by token types, as BERT needs.
  bool has_types() const;
  // SHA-256 of its files, in hex.
  const std::string& fingerprint() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace epipe::data
