#include "epipe/data/text/text_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/base/mapped_file.h"
#include "epipe/data/sources.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::size_t kShortestBlock = 2;  // one token predicts nothing

void list_below(const std::string& path, bool top, std::vector<TextFile>& files) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (top) throw std::runtime_error(fmt::format("no {}: expected a text file, or a folder of them", path));
    return;  // a dangling link
  }
  if (S_ISREG(status.st_mode)) {
    files.push_back({path, static_cast<std::uint64_t>(status.st_size), status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  struct stat link {};
  const bool enter = S_ISDIR(status.st_mode) && (top || (::lstat(path.c_str(), &link) == 0 && !S_ISLNK(link.st_mode)));
  if (!enter) return;
  auto names = value_or_throw(read_folder(path));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!name.starts_with('.')) list_below(path_in(path, name), false, files);
  }
}

class BlockMaker {
 public:
  BlockMaker(const Tokenizer& tokenizer, std::int32_t end, std::size_t length) : tokenizer_(tokenizer), end_(end), length_(length) {}

  void add_file(const std::string& path) {
    const auto file = value_or_throw(MappedFile::open(path));
    const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
    const std::size_t good = valid_utf8_bytes(text);
    if (good < text.size()) throw std::runtime_error(fmt::format("{}: expected UTF-8, got another byte at offset {}", path, good));
    if (path.ends_with(".jsonl")) {
      add_lines(path, text);
    } else if (!text.empty()) {
      add_document(path, text);
    }
  }

  TokenStore finish() {
    if (stream_.size() >= kShortestBlock) add_row(stream_, 0);
    return make_token_store(std::move(tokens_), std::move(samples_), left_out_);
  }

 private:
  TokenIds encode(const std::string& where, std::string_view text) const {
    auto ids = tokenizer_.encode(text);
    if (!ids) throw std::runtime_error(fmt::format("{}: {}", where, ids.error().message));
    return std::move(ids).value();
  }

  void add_document(const std::string& where, std::string_view text) {
    const TokenIds ids = encode(where, text);
    stream_.insert(stream_.end(), ids.begin(), ids.end());
    stream_.push_back(end_);
    std::size_t done = 0;
    for (; stream_.size() - done >= length_; done += length_) add_row(std::span(stream_).subspan(done, length_), 0);
    stream_.erase(stream_.begin(), stream_.begin() + static_cast<std::ptrdiff_t>(done));
  }

  void add_answer(const std::string& where, const std::string& prompt, const std::string& completion) {
    TokenIds row = encode(where, prompt);
    const std::size_t given = row.size();
    const TokenIds answer = encode(where, completion);
    row.insert(row.end(), answer.begin(), answer.end());
    row.push_back(end_);
    row.resize(std::min(row.size(), length_));
    if (given >= row.size() || row.size() < kShortestBlock) {
      ++left_out_;
    } else {
      add_row(row, given);
    }
  }

  void add_lines(const std::string& path, std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) add_line(fmt::format("{}:{}", path, number), line);
    }
  }

  void add_line(const std::string& where, std::string_view line) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto has = [&](const char* name) { return parsed.is_object() && parsed.contains(name) && parsed[name].is_string(); };
    if (has("text")) return add_document(where, parsed["text"].get_ref<const std::string&>());
    if (has("prompt") && has("completion")) {
      return add_answer(where, parsed["prompt"].get_ref<const std::string&>(), parsed["completion"].get_ref<const std::string&>());
    }
    throw std::runtime_error(fmt::format(R"({}: expected {{"text": "..."}} or {{"prompt": "...", "completion": "..."}})", where));
  }

  void add_row(std::span<const std::int32_t> row, std::size_t prompt) {
    samples_.push_back({tokens_.size(), static_cast<std::uint32_t>(row.size()), static_cast<std::uint32_t>(prompt)});
    tokens_.insert(tokens_.end(), row.begin(), row.end());
  }

  const Tokenizer& tokenizer_;
  std::int32_t end_;
  std::size_t length_;
  TokenIds stream_;  // tokens of documents, not yet in a block
  TokenIds tokens_;
  std::vector<TokenSample> samples_;
  std::uint64_t left_out_ = 0;
};

}  // namespace

std::vector<TextFile> list_text_files(const std::string& path) {
  std::vector<TextFile> files;
  list_below(path, true, files);
  if (files.empty()) throw std::runtime_error(fmt::format("{} has no files of text", path));
  return files;
}

TokenStore tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer, std::int32_t end, std::size_t length) {
  BlockMaker maker(tokenizer, end, length);
  for (const TextFile& file : files) maker.add_file(file.path);
  return maker.finish();
}

}  // namespace epipe::data
