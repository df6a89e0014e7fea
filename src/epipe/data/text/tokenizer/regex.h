#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "epipe/base/build_part.h"

namespace epipe::data {

// A regular expression in the syntax of tokenizer.json (Oniguruma's), run by PCRE2. Any thread may search.
class Regex {
 public:
  // Throws BadTokenizer if the pattern is invalid, uses a feature PCRE2 lacks, or epipe is built without PCRE2.
  explicit Regex(std::string_view pattern);

  // Calls `found` with begin and end of every match in `text` (UTF-8), from left to right, without overlaps. Throws BadTokenizer if a match
  // takes more steps than any reasonable pattern needs.
  void each_match(std::string_view text, const std::function<void(std::size_t begin, std::size_t end)>& found) const;

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;  // shared by copies
};

Part pcre2_part();

}  // namespace epipe::data
