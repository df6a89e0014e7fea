#include "epipe/data/text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

using Points = std::vector<utf8proc_int32_t>;

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

utf8proc_option_t options_of(NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  return static_cast<utf8proc_option_t>(options);
}

void append_decomposed(char32_t point, utf8proc_option_t options, Points& out) {
  std::array<utf8proc_int32_t, 32> parts{};  // the longest one has 18
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(), parts.size(), options, nullptr);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back(static_cast<utf8proc_int32_t>(point));
  } else {
    out.insert(out.end(), parts.begin(), parts.begin() + count);
  }
}

int combining_class(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

// Puts each run of marks into canonical order. The library's own function takes quadratic time for a long run.
void order_marks(Points& points) {
  for (auto begin = points.begin(); begin != points.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(), [](auto point) { return combining_class(point) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_normal(std::string_view text, NormalForm form, std::string& out) {
  const utf8proc_option_t options = options_of(form);
  const auto whole = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (options & UTF8PROC_COMPAT));
  Points points;
  for (; !text.empty(); text.remove_prefix(first_code_point(text).bytes)) append_decomposed(first_code_point(text).value, whole, points);
  order_marks(points);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (composes(form)) count = utf8proc_normalize_utf32(points.data(), count, options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<char32_t>(points[static_cast<std::size_t>(i)]), out);
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Where the next run of bytes that normalizing may change begins: it may also combine with the ASCII character before it.
std::size_t plain_end(std::string_view text, std::size_t from) {
  std::size_t at = from;
  while (at < text.size() && is_ascii(text[at])) ++at;
  return at == text.size() ? at : std::max(from, at == 0 ? 0 : at - 1);
}

utf8proc_category_t category(char32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = plain_end(text, at);
    out.append(text, at, plain - at);
    std::size_t end = plain == text.size() ? plain : plain + 1;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    append_normal(text.substr(plain, end - plain), form, out);
    at = end;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;  // the only character that becomes two
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    append_utf8(point.value == kDottedI ? U'i' : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))), out);
    if (point.value == kDottedI) append_utf8(0x307, out);
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (category(point.value) != UTF8PROC_CATEGORY_MN) out.append(text, 0, point.bytes);
    text.remove_prefix(point.bytes);
  }
  return out;
}

bool is_control(char32_t point) {
  const auto kind = category(point);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

bool is_punctuation(char32_t point) {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

void require_utf8proc() {}
Part utf8proc_part() { return {"utf8proc", true, utf8proc_version()}; }

}  // namespace epipe::data
