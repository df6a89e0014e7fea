// epipe generate
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"
#include "epipe/cli/load_model.h"
#include "epipe/data/npy.h"
#include "epipe/model/decoder_config.h"
#include "epipe/model/generate.h"

namespace epipe::cli {
namespace {

constexpr std::string_view kHf = "hf:";

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
  if (!flags.model.model.starts_with(kHf)) throw UsageError(fmt::format("expected a language model, hf:DIR, got {}", flags.model.model));
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  try {
    const auto config = model::hf_decoder_config(flags.model.model.substr(kHf.size()));
    const auto ids = read_ids(flags.input_ids);
    check_prompt(ids, config, flags.options.max_new_tokens);
    if (!flags.ignore_end) flags.options.end_tokens = config.end_tokens;
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {1};
    const auto model = load_model(models, flags.model, spec);
    const auto all = model::generate(model, ids, flags.options);
    fmt::print("{}\n", nlohmann::json{{"ids", all}}.dump());
  } catch (const std::invalid_argument& error) {
    throw Failure(error.what());
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
  command->add_option("--max-new-tokens", options.max_new_tokens, "Tokens that follow at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--temperature", options.temperature, "0: the most likely token, always; above: drawn")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_option("--top-p", options.top_p, "Draw from the most likely tokens that have this probability together")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Of the draws")->capture_default_str();
  command->add_flag("--ignore-end", flags->ignore_end, "Go on after a token that ends the text");
  command->add_option("--threads", flags->threads, "Threads inside an operator; 0: as LibTorch chooses")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print {\"ids\": [...]}, the prompt included");
  command->callback([flags, &registry] { run_generate(registry.models, *flags); });
}

}  // namespace epipe::cli
