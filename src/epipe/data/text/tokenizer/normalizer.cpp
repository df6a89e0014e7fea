#include "epipe/data/text/tokenizer/normalizer.h"

#include <map>

#include "epipe/data/text/tokenizer/normal_form.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr const char* kNormalizers = "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, BertNormalizer and Sequence";

bool is_ideograph(char32_t p) {
  return (p >= 0x4e00 && p <= 0x9fff) || (p >= 0x3400 && p <= 0x4dbf) || (p >= 0x20000 && p <= 0x2a6df) || (p >= 0x2a700 && p <= 0x2b73f) ||
         (p >= 0x2b740 && p <= 0x2b81f) || (p >= 0x2b920 && p <= 0x2ceaf) || (p >= 0xf900 && p <= 0xfaff) || (p >= 0x2f800 && p <= 0x2fa1f);
}

// Removes control characters, and replaces white space by blanks.
std::string cleaned(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (is_space(point.value) && point.value != 0x0b && point.value != 0x0c && point.value != 0x85) {
      out += ' ';
    } else if (point.value != 0xfffd && !is_control(point.value)) {
      out.append(text, 0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

// Makes every ideograph a separate word.
std::string with_spaced_ideographs(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    const bool apart = is_ideograph(point.value);
    if (apart) out += ' ';
    out.append(text, 0, point.bytes);
    if (apart) out += ' ';
    text.remove_prefix(point.bytes);
  }
  return out;
}

Normalizer make_bert_normalizer(const Component& bert) {
  const bool lower = bert.flag("lowercase", true);
  const bool clean = bert.flag("clean_text", true);
  const bool ideographs = bert.flag("handle_chinese_chars", true);
  const bool strip = bert.flag("strip_accents", lower);
  return [=](std::string_view given) {
    std::string text(given);
    if (clean) text = cleaned(text);
    if (ideographs) text = with_spaced_ideographs(text);
    if (strip) text = without_marks(to_normal_form(text, NormalForm::kNfd));
    return lower ? to_lower(text) : text;
  };
}

Normalizer make_normalizer_sequence(const Component& sequence) {
  std::vector<Normalizer> parts;
  for (const Component& part : sequence.list("normalizers")) {
    if (Normalizer made = make_normalizer(part)) parts.push_back(std::move(made));
  }
  return [parts = std::move(parts)](std::string_view given) {
    std::string text(given);
    for (const Normalizer& part : parts) text = part(text);
    return text;
  };
}

}  // namespace

Normalizer make_normalizer(const Component& normalizer) {
  if (normalizer.absent()) return {};
  const std::string type = normalizer.type();
  if (type == "Sequence") return make_normalizer_sequence(normalizer);
  try {
    require_utf8proc();
  } catch (const BadTokenizer& error) {
    normalizer.fail(error.what());
  }
  const std::map<std::string, NormalForm> forms = {
      {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};
  if (const auto form = forms.find(type); form != forms.end()) {
    return [form = form->second](std::string_view text) { return to_normal_form(text, form); };
  }
  if (type == "Lowercase") return [](std::string_view text) { return to_lower(text); };
  if (type == "StripAccents") return [](std::string_view text) { return without_marks(text); };
  if (type == "BertNormalizer") return make_bert_normalizer(normalizer);
  normalizer.unsupported(kNormalizers);
}

}  // namespace epipe::data
