#include "epipe/data/text/tokenizer/decoder.h"

#include <array>
#include <utility>

#include "epipe/data/text/tokenizer/byte_names.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

// Removes blanks before English punctuation, like Hugging Face's `cleanup`.
void clean_up(std::string& token) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kChanges = {{{" .", "."},
                                                                                       {" ?", "?"},
                                                                                       {" !", "!"},
                                                                                       {" ,", ","},
                                                                                       {" ' ", "'"},
                                                                                       {" n't", "n't"},
                                                                                       {" 'm", "'m"},
                                                                                       {" do not", " don't"},
                                                                                       {" 's", "'s"},
                                                                                       {" 've", "'ve"},
                                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : kChanges) replace_all(token, from, to);
}

void fuse(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void decode_bytes(std::vector<std::string>& tokens) {
  std::string bytes;
  for (std::string& token : tokens) {
    if (bytes_of_names(token, bytes)) token = bytes;
  }
  fuse(tokens);
  tokens[0] = repaired_utf8(tokens[0]);
}

TokenDecoder make_word_piece_decoder(const Component& decoder) {
  const std::string prefix = decoder.text("prefix", "##");
  const bool cleanup = decoder.flag("cleanup", true);
  return [=](std::vector<std::string>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) tokens[i] = tokens[i].starts_with(prefix) ? tokens[i].substr(prefix.size()) : " " + tokens[i];
      if (cleanup) clean_up(tokens[i]);
    }
  };
}

TokenDecoder make_decoder_sequence(const Component& sequence) {
  std::vector<TokenDecoder> steps;
  for (const Component& part : sequence.list("decoders")) steps.push_back(make_decoder(part));
  return [steps = std::move(steps)](std::vector<std::string>& tokens) {
    for (const TokenDecoder& step : steps) step(tokens);
  };
}

}  // namespace

TokenDecoder make_decoder(const Component& decoder) {
  if (decoder.absent()) {
    return [](std::vector<std::string>& tokens) {
      for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, 1, ' ');
    };
  }
  const std::string type = decoder.type();
  if (type == "ByteLevel") return decode_bytes;
  if (type == "WordPiece") return make_word_piece_decoder(decoder);
  if (type == "Fuse") return fuse;
  if (type == "Sequence") return make_decoder_sequence(decoder);
  decoder.unsupported("ByteLevel, WordPiece, Fuse and Sequence");
}

}  // namespace epipe::data
