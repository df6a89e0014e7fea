#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/tokenizer/normal_form.h"

namespace epipe::data {
namespace {

constexpr const char* kNoUtf8proc = "built without utf8proc; install libutf8proc-dev and build again";

}  // namespace

void require_utf8proc() { throw BadTokenizer(kNoUtf8proc); }
Part utf8proc_part() { return {"utf8proc", false, kNoUtf8proc}; }

std::string to_normal_form(std::string_view /*text*/, NormalForm /*form*/) { throw BadTokenizer(kNoUtf8proc); }
std::string to_lower(std::string_view /*text*/) { throw BadTokenizer(kNoUtf8proc); }
std::string without_marks(std::string_view /*text*/) { throw BadTokenizer(kNoUtf8proc); }
bool is_control(char32_t /*point*/) { throw BadTokenizer(kNoUtf8proc); }
bool is_punctuation(char32_t /*point*/) { throw BadTokenizer(kNoUtf8proc); }

}  // namespace epipe::data
