#pragma once

#include <string>
#include <string_view>

#include "epipe/base/build_part.h"

// Character data from libutf8proc. Text must be UTF-8. If epipe is built without the library, each throws BadTokenizer that says what to
// install.
namespace epipe::data {

enum class NormalForm : char { kNfc, kNfd, kNfkc, kNfkd };

// Takes n log n time, however long the runs of combining marks are.
std::string to_normal_form(std::string_view text, NormalForm form);
// Character by character, by Unicode's full case mapping.
std::string to_lower(std::string_view text);
// Without nonspacing marks (category Mn).
std::string without_marks(std::string_view text);

// General categories Cc, Cf and Co; P*.
bool is_control(char32_t point);
bool is_punctuation(char32_t point);

// Throws if the library is not in the build.
void require_utf8proc();
Part utf8proc_part();

}  // namespace epipe::data
