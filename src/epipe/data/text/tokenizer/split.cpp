#include "epipe/data/text/tokenizer/split.h"

#include <algorithm>
#include <map>
#include <vector>

#include "epipe/data/text/tokenizer/regex.h"

namespace epipe::data {
namespace {

struct Span {
  std::size_t begin;
  std::size_t end;
  bool match;
};

// Every part of the text, matches and what is between them.
void each_span(const Matcher& matcher, bool inverted, std::string_view text, const std::function<void(Span)>& take) {
  std::size_t done = 0;
  matcher(text, [&](std::size_t begin, std::size_t end) {
    if (begin > done) take({done, begin, inverted});
    take({begin, end, !inverted});
    done = end;
  });
  if (done < text.size()) take({done, text.size(), inverted});
}

std::vector<Span> merged_with_next(std::vector<Span> spans) {
  std::vector<Span> out;
  bool previous = false;
  std::reverse(spans.begin(), spans.end());
  for (const Span& span : spans) {
    if (span.match && !previous && !out.empty()) {
      out.back().begin = span.begin;
    } else {
      out.push_back(span);
    }
    previous = span.match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Span> merged(const std::vector<Span>& spans, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kMergedWithNext) return merged_with_next(spans);
  std::vector<Span> out;
  bool previous = false;
  for (const Span& span : spans) {
    const bool joins = behavior == SplitBehavior::kContiguous ? span.match == previous : span.match && !previous;
    if (joins && !out.empty()) {
      out.back().end = span.end;
    } else {
      out.push_back(span);
    }
    previous = span.match;
  }
  return out;
}

Matcher literal(std::string text) {
  return [text = std::move(text)](std::string_view in, const std::function<void(std::size_t, std::size_t)>& found) {
    for (std::size_t at = in.find(text); at != std::string_view::npos; at = in.find(text, at + text.size())) found(at, at + text.size());
  };
}

Matcher make_matcher(const Component& pattern) {
  if (pattern.has("String")) {
    std::string text = pattern.at("String").text();
    if (text.empty()) pattern.fail("expected some text to split at");
    return literal(std::move(text));
  }
  if (!pattern.has("Regex")) pattern.fail(R"(expected {"Regex": ...} or {"String": ...})");
  try {
    return [regex = Regex(pattern.at("Regex").text())](std::string_view in, const std::function<void(std::size_t, std::size_t)>& found) {
      regex.each_match(in, found);
    };
  } catch (const BadTokenizer& error) {
    pattern.fail(error.what());
  }
}

SplitBehavior behavior_of(const Component& split) {
  const std::map<std::string, SplitBehavior> known = {{"Isolated", SplitBehavior::kIsolated},
                                                      {"Removed", SplitBehavior::kRemoved},
                                                      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                                      {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                                      {"Contiguous", SplitBehavior::kContiguous}};
  const auto found = known.find(split.at("behavior").text());
  if (found == known.end()) split.at("behavior").fail("expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
  return found->second;
}

}  // namespace

void split_by(const Matcher& matcher, SplitBehavior behavior, bool inverted, std::string_view text, const WordSink& sink) {
  const auto send = [&](const Span& span) { sink(text.substr(span.begin, span.end - span.begin)); };
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    each_span(matcher, inverted, text, [&](const Span& span) {
      if (!span.match || behavior == SplitBehavior::kIsolated) send(span);
    });
    return;
  }
  std::vector<Span> spans;
  each_span(matcher, inverted, text, [&](const Span& span) { spans.push_back(span); });
  for (const Span& span : merged(spans, behavior)) send(span);
}

PreTokenizer make_split(const Component& split) {
  const SplitBehavior behavior = behavior_of(split);
  const bool inverted = split.flag("invert", false);
  return {[=, matcher = make_matcher(split.at("pattern"))](std::string_view text, const WordSink& sink) {
    split_by(matcher, behavior, inverted, text, sink);
  }};
}

}  // namespace epipe::data
