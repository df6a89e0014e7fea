#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "epipe/data/text/tokenizer.h"
#include "support/tiny_bpe.h"

namespace epipe::testing {

// A tokenizer.json of the tokens and merges of tiny_bpe(), with "<|endoftext|>" as token 261: bytes are 3 ... 258, "aa" 259, "ab" 260.
inline nlohmann::json tiny_tokenizer() {
  nlohmann::json vocab = nlohmann::json::parse(tiny_vocab());
  const nlohmann::json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", {{{"id", 261}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", level},
          {"post_processor", nullptr},
          {"decoder", level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a a", "a b"}}}}};
}

// The same with BERT's template: <s> a </s> b </s>, types 0 and 1.
inline nlohmann::json tiny_pair_tokenizer() {
  nlohmann::json made = tiny_tokenizer();
  made["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 2}}};
  return made;
}

inline data::Tokenizer tokenizer_of(const nlohmann::json& file, const std::string& config = "") {
  auto made = data::Tokenizer::parse(file.dump(), config);
  if (!made) throw std::runtime_error(made.error().message);
  return std::move(made).value();
}

}  // namespace epipe::testing
