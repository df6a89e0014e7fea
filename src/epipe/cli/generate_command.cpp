// epipe generate
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "epipe/cli/command.h"
#include "epipe/cli/device_flag.h"
#include "epipe/cli/load_model.h"
#include "epipe/data/npy.h"
#include "epipe/data/text/tokenizer.h"
#include "epipe/model/decoder_config.h"
#include "epipe/model/generate.h"
#include "epipe/model/hf_folder.h"

namespace epipe::cli {
namespace {

struct GenerateFlags {
  LoadedModel model;
  std::string prompt;
  std::string input_ids;
  model::GenerateOptions options;
  bool ignore_end = false;
  int threads = 0;
  bool json = false;
};

std::vector<std::int64_t> read_ids(const std::string& path) {
  const auto x = value_or_fail(data::read_npy_any(path));
  const bool one_row = x.dim() == 1 || (x.dim() == 2 && x.size(0) == 1);
  if (x.is_floating_point() || !one_row || x.numel() == 0)
    throw Failure(fmt::format("{}: expected the token ids of one text, [T] or [1, T]", path));
  const auto ids = x.to(torch::kInt64).contiguous();
  return {ids.data_ptr<std::int64_t>(), ids.data_ptr<std::int64_t>() + ids.numel()};
}

std::vector<std::int64_t> encode(const data::Tokenizer& tokenizer, const std::string& text) {
  const auto ids = value_or_fail(tokenizer.encode(text, /*special=*/true));
  if (ids.empty()) throw Failure("the prompt has no tokens");
  return {ids.begin(), ids.end()};
}

// Prints the text token by token. A token may end within a character; its bytes are held back.
class Printer {
 public:
  Printer(const data::Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) : tokenizer_(tokenizer), ids_(ids.begin(), ids.end()) {
    print(false);
  }
  void add(std::int64_t id) {
    ids_.push_back(static_cast<std::int32_t>(id));
    print(false);
  }
  void finish() {
    print(true);
    fmt::print("\n");
  }

 private:
  void print(bool all) {
    const std::string text = tokenizer_.decode(ids_, /*skip_special=*/true);
    if (!all && text.ends_with("\uFFFD")) return;
    if (text.size() > printed_) fmt::print("{}", text.substr(printed_));
    printed_ = std::max(printed_, text.size());
    std::fflush(stdout);
  }

  const data::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::size_t printed_ = 0;
};

void check_prompt(const std::vector<std::int64_t>& ids, const model::DecoderConfig& config, std::int64_t more) {
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= config.vocab_size) throw Failure(fmt::format("expected token ids from 0 to {}, got {}", config.vocab_size - 1, id));
  }
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length + more <= config.positions) return;
  throw Failure(
      fmt::format("the prompt has {} tokens and {} are to follow, but the model has {} positions; use a shorter prompt or a smaller "
                  "--max-new-tokens",
                  length, more, config.positions));
}

void run_generate(const model::Registry& models, GenerateFlags flags) {
  if (flags.prompt.empty() == flags.input_ids.empty()) throw UsageError("give --prompt, or --input-ids");
  const auto folder = model::hf_folder_of(flags.model.model);
  if (!folder) throw UsageError(fmt::format("expected a language model, hf:DIR, got {}", flags.model.model));
  check_device_exists("--devices", flags.model.device);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  try {
    const auto config = model::hf_decoder_config(*folder);
    std::optional<data::Tokenizer> tokenizer;
    if (!flags.json || !flags.prompt.empty()) tokenizer = value_or_fail(data::Tokenizer::read(*folder));
    const auto ids = flags.prompt.empty() ? read_ids(flags.input_ids) : encode(*tokenizer, flags.prompt);
    check_prompt(ids, config, flags.options.max_new_tokens);
    if (!flags.ignore_end) flags.options.end_tokens = config.end_tokens;
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {1};
    const auto model = load_model(models, flags.model, spec);
    const torch::Device device(flags.model.device);
    if (flags.json) {
      fmt::print("{}\n", nlohmann::json{{"ids", model::generate(model, ids, flags.options, {}, device)}}.dump());
      return;
    }
    Printer printer(*tokenizer, ids);
    model::generate(model, ids, flags.options, [&](std::int64_t id) { printer.add(id); }, device);
    printer.finish();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_generate_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<GenerateFlags>();  // owned by the callback as well
  auto& options = flags->options;
  auto* command = app.add_subcommand("generate", "Continues a text with a language model");
  command->add_option("--model", flags->model.model, "hf:DIR")->required();
  command->add_option("--weights", flags->model.weights, "Other weights than those in DIR");
  command->add_option("--adapter", flags->model.adapter, "A LoRA adapter: a folder by PEFT, or RUN/adapter");
  command->add_option("--prompt", flags->prompt, "The text to continue; DIR has its tokenizer.json");
  command->add_option("--input-ids", flags->input_ids, "The same as token ids [T], .npy of integers");
  command->add_option("--max-new-tokens", options.max_new_tokens, "Maximum number of new tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--temperature", options.temperature, "0: the most likely token, always; above: drawn")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_option("--top-p", options.top_p, "Draw from the most likely tokens whose probabilities add up to this")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the draws")->capture_default_str();
  command->add_flag("--ignore-end", flags->ignore_end, "Continue after a token that ends the text");
  command->add_option("--devices", flags->model.device, "The device that runs the model: cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads inside an operator; 0: as LibTorch chooses")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print {\"ids\": [...]}, the prompt included");
  command->callback([flags, &registry] { run_generate(registry.models, *flags); });
}

}  // namespace epipe::cli
