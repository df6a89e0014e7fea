#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "epipe/data/text/bpe.h"

namespace epipe::testing {

// A character as the tokenizer's files spell a byte.
inline std::string byte_name(unsigned byte, unsigned& next) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  const unsigned point = printable ? byte : next++;
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xc0U | point >> 6U), static_cast<char>(0x80U | (point & 0x3fU))};
}

// vocab.json of <s> <pad> </s>, the 256 bytes, "aa" and "ab"; the two are the merges.
inline std::string tiny_vocab() {
  nlohmann::json vocab = {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}};
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) vocab[byte_name(byte, next)] = 3 + byte;
  vocab["aa"] = 259;
  vocab["ab"] = 260;
  return vocab.dump();
}
inline std::string tiny_merges() { return "#version: 0.2\na a\na b\n"; }

inline data::Bpe tiny_bpe() {
  const std::string vocab = tiny_vocab();
  const std::string merges = tiny_merges();
  auto bpe = data::Bpe::parse(std::as_bytes(std::span(vocab)), std::as_bytes(std::span(merges)));
  if (!bpe) throw std::runtime_error(bpe.error().message);
  return std::move(bpe).value();
}

}  // namespace epipe::testing
