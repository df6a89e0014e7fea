#include "epipe/data/text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "epipe/base/printable.h"
#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::size_t kMostPatternBytes = 1 << 16;
constexpr std::uint32_t kMostNesting = 100;
constexpr std::uint64_t kLeastSteps = 10'000'000;  // of one match; a run of 10 MB takes a few for each of its bytes
constexpr std::uint64_t kStepsPerByte = 8;
constexpr std::uint64_t kMostSteps = 4'000'000'000;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

[[noreturn]] void refuse(std::string_view pattern, std::string_view reason) {
  throw BadTokenizer(fmt::format("the pattern {}: {}", printable(pattern, 120), reason));
}

// Oniguruma's sets of white space and word characters have no short name in PCRE2; inside [] and outside.
std::string_view set_of(char letter) {
  switch (letter) {
    case 's': return R"(\t-\r\x{85}\p{Z})";
    case 'w': return R"(\p{L}\p{M}\p{N}\p{Pc})";
    default: return "";
  }
}

// The same pattern for PCRE2.
std::string translated(std::string_view pattern) {
  std::string out;
  bool in_set = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      const bool negated = next == 'S' || next == 'W';
      const std::string_view set = set_of(negated ? static_cast<char>(next - 'A' + 'a') : next);
      if (negated && in_set) refuse(pattern, fmt::format("\\{} inside [] is not supported", next));
      if (next == 'h' || next == 'H') refuse(pattern, fmt::format("\\{} is not supported", next));
      out += set.empty() ? std::string{c, next} : in_set ? std::string(set) : fmt::format("[{}{}]", negated ? "^" : "", set);
      if (next == '\0') out.pop_back();
      ++i;
      continue;
    }
    if (in_set && c == '&' && next == '&') refuse(pattern, "&& inside [] is not supported");
    if (in_set && c == '[' && next != ':') refuse(pattern, "[] inside [] is not supported");
    if (in_set && c == '[') {  // [:alpha:]
      const std::size_t end = pattern.find(":]", i + 2);
      if (end == std::string_view::npos) refuse(pattern, "[: has no end");
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
      continue;
    }
    const bool opens = !in_set && c == '[';
    out += c;
    if (opens && next == '^') out += pattern[++i];
    if (opens && i + 1 < pattern.size() && pattern[i + 1] == ']') {
      ++i;
      out += "\\]";
    }
    if (opens) in_set = true;
    if (!opens && c == ']') in_set = false;
  }
  return out;
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data()); }

}  // namespace

class Regex::Impl {
  template <auto kFree>
  struct Free {
    template <typename T>
    void operator()(T* pointer) const {
      kFree(pointer);
    }
  };
  using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
  using Match = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
  using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
  using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;

 public:
  explicit Impl(std::string_view given) : pattern_(given) {
    if (given.size() > kMostPatternBytes) refuse(given, fmt::format("is longer than {} bytes", kMostPatternBytes));
    const std::string pattern = translated(given);
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_parens_nest_limit(context.get(), kMostNesting);
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    code_.reset(pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, context.get()));
    if (code_ == nullptr) refuse(given, fmt::format("{} (at byte {} of {})", message_of(error), offset, printable(pattern, 200)));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it, searching is slower
  }

  void each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) const {
    const Match match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const MatchContext context(pcre2_match_context_create(nullptr));
    const std::uint64_t steps = std::min(kMostSteps, kLeastSteps + kStepsPerByte * text.size());
    pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(steps));
    const PCRE2_SIZE* const at = pcre2_get_ovector_pointer(match.get());
    for (std::size_t from = 0; from <= text.size();) {
      if (!search(text, from, match.get(), context.get())) return;
      if (at[1] > at[0]) found(at[0], at[1]);
      const bool empty = at[1] <= at[0];
      from = std::max<std::size_t>(at[1], from);
      if (empty) from += from < text.size() ? first_code_point(text.substr(from)).bytes : 1;
    }
  }

 private:
  bool search(std::string_view text, std::size_t from, pcre2_match_data* match, pcre2_match_context* context) const {
    int count = pcre2_match(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK, match, context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, context);
    }
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) refuse(pattern_, fmt::format("{} at byte {} of the text", message_of(count), from));
    return count >= 0;
  }

  std::string pattern_;
  Code code_;
};

Regex::Regex(std::string_view pattern) : impl_(std::make_shared<const Impl>(pattern)) {}

void Regex::each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) const {
  impl_->each_match(text, found);
}

Part pcre2_part() {
  std::array<char, 64> version{};
  pcre2_config(PCRE2_CONFIG_VERSION, version.data());
  return {"PCRE2", true, version.data()};
}

}  // namespace epipe::data
