#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/data/text/token_store.h"
#include "epipe/data/text/tokenizer.h"

namespace epipe::data {

struct TextFile {
  std::string path;
  std::uint64_t bytes;
  std::int64_t changed;  // nanoseconds since 1970
};

// The file, or all regular files below the folder, sorted by path; names that begin with a dot are left out. Throws std::runtime_error if
// there are none.
std::vector<TextFile> list_text_files(const std::string& path);

// Tokenizes files: documents (a file, or a line {"text": ...} of a .jsonl file), each followed by `end`, are joined and cut into blocks of
// `length` tokens, the last one perhaps shorter; a line {"prompt": ..., "completion": ...} is a separate row, cut at `length`. Throws
// std::runtime_error that names file and line or byte.
TokenStore tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer, std::int32_t end, std::size_t length);

}  // namespace epipe::data
