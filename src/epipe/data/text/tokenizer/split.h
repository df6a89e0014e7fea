#pragma once

#include <functional>
#include <string_view>

#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/tokenizer/pre_tokenizer.h"

namespace epipe::data {

// Calls the second argument with begin and end of each match, from the left.
using Matcher = std::function<void(std::string_view text, const std::function<void(std::size_t begin, std::size_t end)>& found)>;

// What becomes of a match: a word of its own, nothing, a part of the word before or after it, or one word with the matches beside it.
enum class SplitBehavior : char { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// `inverted`: what lies between the matches is treated as the matches are, and the other way round.
void split_by(const Matcher& matcher, SplitBehavior behavior, bool inverted, std::string_view text, const WordSink& sink);

// The pre-tokenizer Split.
PreTokenizer make_split(const Component& split);

}  // namespace epipe::data
