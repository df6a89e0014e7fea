#include "epipe/data/text/tokenizer/component.h"
#include "epipe/data/text/tokenizer/regex.h"

namespace epipe::data {
namespace {

constexpr const char* kNoPcre2 = "built without PCRE2; install libpcre2-dev and build again";

}  // namespace

class Regex::Impl {};
Regex::Regex(std::string_view /*pattern*/) { throw BadTokenizer(kNoPcre2); }
void Regex::each_match(std::string_view /*text*/, const std::function<void(std::size_t, std::size_t)>& /*found*/) const {}
Part pcre2_part() { return {"PCRE2", false, kNoPcre2}; }

}  // namespace epipe::data
