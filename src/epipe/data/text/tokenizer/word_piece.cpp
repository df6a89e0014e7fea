#include <fmt/format.h>

#include <algorithm>

#include "epipe/data/text/tokenizer/word_model.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kMostCharacters = 1 << 20;
constexpr std::int64_t kUsualCharacters = 100;

class WordPieceModel final : public WordModel {
 public:
  WordPieceModel(const TokenTable& vocabulary, const std::string& prefix, std::int32_t unknown, std::size_t most)
      : unknown_(unknown), most_characters_(most) {
    for (const auto& [token, id] : vocabulary) {
      longest_ = std::max(longest_, token.size());
      if (!token.empty()) firsts_.emplace(token, id);
      if (token.size() > prefix.size() && token.starts_with(prefix)) nexts_.emplace(token.substr(prefix.size()), id);
    }
  }

  void encode(std::string_view word, TokenIds& out) const override {
    const std::size_t begin = out.size();
    if (characters(word) <= most_characters_ && add_pieces(word, out)) return;
    out.resize(begin);
    out.push_back(unknown_);
  }

 private:
  static std::size_t characters(std::string_view word) {
    return static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
  }

  bool add_pieces(std::string_view word, TokenIds& out) const {
    for (const TokenTable* pieces = &firsts_; !word.empty(); pieces = &nexts_) {
      std::size_t bytes = std::min(word.size(), longest_);
      auto found = pieces->end();
      for (; bytes > 0; --bytes) {
        found = pieces->find(word.substr(0, bytes));
        if (found != pieces->end()) break;
      }
      if (bytes == 0) return false;
      out.push_back(found->second);
      word.remove_prefix(bytes);
    }
    return true;
  }

  TokenTable firsts_;  // pieces at the beginning of a word
  TokenTable nexts_;   // later ones, without the prefix that marks them
  std::size_t longest_ = 0;
  std::int32_t unknown_;
  std::size_t most_characters_;
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece_model(const Component& model, const TokenTable& vocabulary) {
  const std::string unknown = model.text("unk_token", "[UNK]");
  const auto found = vocabulary.find(unknown);
  if (found == vocabulary.end()) model.fail(fmt::format("the vocabulary has no token \"{}\" for unknown words", unknown));
  const char* const kMost = "max_input_chars_per_word";
  const std::int64_t most = model.has(kMost) ? model.at(kMost).number(kMostCharacters) : kUsualCharacters;
  return std::make_unique<WordPieceModel>(vocabulary, model.text("continuing_subword_prefix", "##"), found->second,
                                          static_cast<std::size_t>(most));
}

}  // namespace epipe::data
