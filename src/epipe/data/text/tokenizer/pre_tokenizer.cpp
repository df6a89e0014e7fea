#include "epipe/data/text/tokenizer/pre_tokenizer.h"

#include "epipe/data/text/tokenizer/normal_form.h"
#include "epipe/data/text/tokenizer/split.h"
#include "epipe/data/text/unicode.h"
#include "epipe/data/text/words.h"

namespace epipe::data {
namespace {

constexpr const char* kPreTokenizers = "ByteLevel, Split, Digits, BertPreTokenizer and Sequence";

PreTokenizer make_byte_level(const Component& byte_level) {
  const bool prefix = byte_level.flag("add_prefix_space", true);
  const bool words = byte_level.flag("use_regex", true);
  const auto split = [=](std::string_view text, const WordSink& sink) {
    std::string prefixed;
    if (prefix && !text.empty() && text[0] != ' ') {
      prefixed.assign(1, ' ').append(text);
      text = prefixed;
    }
    if (!words) return sink(text);
    while (!text.empty()) sink(take_word(text));
  };
  return {split, true};
}

// A matcher of single characters.
template <typename Predicate>
Matcher characters(Predicate matches) {
  return [matches](std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) {
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = first_code_point(text.substr(at));
      if (matches(point.value)) found(at, at + point.bytes);
      at += point.bytes;
    }
  };
}

PreTokenizer make_digits(const Component& digits) {
  const SplitBehavior behavior = digits.flag("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  const auto is_digit = [](char32_t p) { return p < 0x80 ? p >= '0' && p <= '9' : is_number(p); };
  return {
      [=, matcher = characters(is_digit)](std::string_view text, const WordSink& sink) { split_by(matcher, behavior, false, text, sink); }};
}

bool is_bert_punctuation(char32_t p) {
  if (p < 0x80) return (p > ' ' && p < '0') || (p > '9' && p < 'A') || (p > 'Z' && p < 'a') || (p > 'z' && p < 0x7f);
  return is_punctuation(p);
}

PreTokenizer make_bert_pre_tokenizer(const Component& bert) {
  try {
    require_utf8proc();
  } catch (const BadTokenizer& error) {
    bert.fail(error.what());
  }
  return {[spaces = characters(is_space), marks = characters(is_bert_punctuation)](std::string_view text, const WordSink& sink) {
    split_by(spaces, SplitBehavior::kRemoved, false, text,
             [&](std::string_view word) { split_by(marks, SplitBehavior::kIsolated, false, word, sink); });
  }};
}

using Steps = std::vector<PreTokenizer>;

void run_steps(const Steps& steps, std::size_t step, std::string_view text, const WordSink& sink) {
  if (step == steps.size()) return sink(text);
  if (step + 1 == steps.size()) return steps[step].split(text, sink);
  steps[step].split(text, [&](std::string_view word) { run_steps(steps, step + 1, word, sink); });
}

PreTokenizer make_pre_tokenizer_sequence(const Component& sequence) {
  Steps steps;
  for (const Component& part : sequence.list("pretokenizers")) {
    if (!steps.empty() && steps.back().byte_level) part.fail("nothing may follow ByteLevel in a Sequence");
    steps.push_back(make_pre_tokenizer(part));
  }
  const bool byte_level = !steps.empty() && steps.back().byte_level;
  const auto split = [steps = std::move(steps)](std::string_view text, const WordSink& sink) { run_steps(steps, 0, text, sink); };
  return {split, byte_level};
}

}  // namespace

PreTokenizer make_pre_tokenizer(const Component& pre_tokenizer) {
  if (pre_tokenizer.absent()) return {[](std::string_view text, const WordSink& sink) { sink(text); }};
  const std::string type = pre_tokenizer.type();
  if (type == "ByteLevel") return make_byte_level(pre_tokenizer);
  if (type == "Split") return make_split(pre_tokenizer);
  if (type == "Digits") return make_digits(pre_tokenizer);
  if (type == "BertPreTokenizer") return make_bert_pre_tokenizer(pre_tokenizer);
  if (type == "Sequence") return make_pre_tokenizer_sequence(pre_tokenizer);
  pre_tokenizer.unsupported(kPreTokenizers);
}

}  // namespace epipe::data
