#pragma once

#include <functional>
#include <string_view>

#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/tokenizer/pre_tokenizer.h"

namespace epipe::data {

// Calls `found` with begin and end of each match, from left to right.
using Matcher = std::function<void(std::string_view text, const std::function<void(std::size_t begin, std::size_t end)>& found)>;

// What happens to a match: it becomes a separate word, is removed, joins the previous or next word, or joins adjacent matches.
enum class SplitBehavior : char { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// `inverted`: swaps the roles of the matches and the text between them.
void split_by(const Matcher& matcher, SplitBehavior behavior, bool inverted, std::string_view text, const WordSink& sink);

// The pre-tokenizer Split.
PreTokenizer make_split(const Component& split);

}  // namespace epipe::data
