// Any bytes are words that put together are the text, and tokens that put together are its bytes.
#include <cstdlib>
#include <map>
#include <string>

#include "epipe/data/text/words.h"
#include "support/tiny_bpe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe;
  static const data::Bpe bpe = testing::tiny_bpe();
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string words;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = data::take_word(rest);
    if (word.empty()) std::abort();
    words += word;
  }
  data::TokenIds ids;
  bpe.encode(text, ids);
  std::string decoded;
  for (const auto id : ids) decoded += id == 259 ? "aa" : id == 260 ? "ab" : std::string(1, static_cast<char>(id - 3));
  if (words != text || decoded != text) std::abort();
  return 0;
}
