// Any bytes are a tokenizer or a named error; a tokenizer takes any text, and its ids are tokens.
#include <cstdlib>

#include "epipe/data/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe::data;
  // The file, a zero, the text.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view text = zero == std::string_view::npos ? "a caf\xc3\xa9 <s> 12" : input.substr(zero + 1);
  const auto tokenizer = Tokenizer::parse(input.substr(0, zero), "");
  if (!tokenizer && tokenizer.error().message.empty()) std::abort();
  if (!tokenizer) return 0;
  const auto encoding = tokenizer.value().encode_texts({text, "b"}, true, 16);
  if (!encoding && encoding.error().message.empty()) std::abort();
  if (!encoding) return 0;
  if (encoding.value().ids.size() != encoding.value().types.size()) std::abort();
  tokenizer.value().decode(encoding.value().ids, true);
  return 0;
}
