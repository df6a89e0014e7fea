// epipe experiment: repeats the reference's experiments and compares the results
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/experiment/runner.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/experiment/table.h"

namespace epipe::cli {
namespace {

struct ExperimentFlags {
  std::vector<std::string> words;  // ids and patterns, then flags of train
  std::string more;                // the last of these words
  RunnerConfig runner;
  bool json = false;
};

experiment::Machine this_machine(const CLI::App& program) {
  const bool replicas = program.get_subcommand("train")->get_option_no_throw("--replicas") != nullptr;
  return {static_cast<int>(torch::cuda::device_count()), replicas};
}

// Words before the first flag name experiments, the rest overrides their flags.
std::vector<experiment::Entry> take_entries(ExperimentFlags& flags) {
  if (!flags.more.empty()) flags.words.push_back(flags.more);
  const auto first_flag = std::find_if(flags.words.begin(), flags.words.end(), [](const auto& word) { return word.starts_with("-"); });
  auto extra = experiment::parse_flags({first_flag, flags.words.end()});
  if (!extra) throw UsageError(extra.error().message);
  for (const auto& [name, value] : extra.value()) {
    if (name == "--seed" || name == "--run-dir" || name == "--resume")
      throw UsageError(name + " is chosen for every run; --seeds and --out say which");
  }
  flags.runner.settings.extra = std::move(extra).value();
  auto chosen = experiment::select(value_or_fail(experiment::read_catalogue()), {flags.words.begin(), first_flag});
  if (!chosen) throw UsageError(chosen.error().message);
  return std::move(chosen).value();
}

void run_list(ExperimentFlags flags) {
  const auto entries = take_entries(flags);
  const auto rows = experiment::make_rows(entries, {}, flags.runner.settings, flags.runner.machine);
  for (const auto& row : rows) {
    const bool can_run = row.not_run == "not asked for";
    if (flags.json) continue;
    fmt::print("{}\n    {}\n    published: {}{}\n    {}\n", row.entry.id, experiment::describe(row.entry),
               experiment::describe(row.entry.published), row.entry.note.empty() ? "" : " (" + row.entry.note + ")",
               can_run ? "can run here" : "not run: " + row.not_run);
  }
  if (flags.json) fmt::print("{}", experiment::to_json_lines(rows));
}

void run_run(ExperimentFlags flags) {
  keep_files_private();
  if (flags.words.empty() || flags.words[0].starts_with("-")) {
    throw UsageError("expected the ids of experiments, e.g. acc-cifar10-sort8 or 'acc-rte-*'; `epipe experiment list` shows all");
  }
  const auto entries = take_entries(flags);
  if (flags.runner.out.empty() && !flags.runner.dry_run) throw UsageError("expected --out DIR, the folder of runs and results");
  const int failures = run_experiments(entries, flags.runner, stop_on_signals());
  if (failures > 0) throw Failure(fmt::format("{} of the runs failed; their logs say why", failures));
}

void run_table(ExperimentFlags flags) {
  const auto entries = take_entries(flags);
  if (list_folder(flags.runner.out).empty()) throw Failure(fmt::format("there are no results in {}", flags.runner.out));
  const auto results = value_or_fail(experiment::read_results(flags.runner.out + "/results.jsonl"));
  const auto rows = experiment::make_rows(entries, results, flags.runner.settings, flags.runner.machine);
  fmt::print("{}", flags.json ? experiment::to_json_lines(rows) : experiment::to_markdown(rows));
}

void add_settings_flags(CLI::App& command, experiment::Settings& settings) {
  command.add_option("--data-root", settings.data_root, "Folder of cifar10, cifar100, food101, glue and imagenet");
  command.add_option("--weights-root", settings.weights_root, "Folder of mobilenet_v2.safetensors and roberta-base.safetensors");
  command.add_option("--devices", settings.devices, "Device of each worker, or one for all; default: a GPU for each worker")
      ->delimiter(',');
  command.add_flag("--from-scratch", settings.from_scratch, "Begin from fresh weights where trained ones are missing");
}

void add_run(CLI::App& command, const CLI::App& program) {
  auto flags = std::make_shared<ExperimentFlags>();  // owned by the callback as well
  auto* run = command.add_subcommand("run", "Run experiments one after the other; finished ones are skipped");
  run->add_option("ID", flags->words, "Ids or patterns such as 'acc-rte-*'");
  // CLI11 lets words follow -- only where a positional is still open.
  run->add_option("FLAGS", flags->more, "After --: flags of train that override the experiments' flags");
  run->add_option("--out", flags->runner.out, "Folder for results.jsonl and the runs");
  run->add_option("--scale", flags->runner.settings.scale, "Share of the samples and of the epochs")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  run->add_option("--seeds", flags->runner.seeds, "Runs of each, with the seeds 0, 1, ...")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  run->add_option("--max-steps", flags->runner.settings.max_steps, "Stop each run after this many steps; 0: all")
      ->check(number_from_zero())
      ->capture_default_str();
  run->add_flag("--dry-run", flags->runner.dry_run, "Print the commands instead");
  add_settings_flags(*run, flags->runner.settings);
  run->callback([flags, &program] {
    flags->runner.machine = this_machine(program);
    run_run(*flags);
  });
}

void add_view(CLI::App& command, const CLI::App& program, const char* name, const char* help, void (*show)(ExperimentFlags)) {
  auto flags = std::make_shared<ExperimentFlags>();  // owned by the callback as well
  auto* view = command.add_subcommand(name, help);
  view->add_option("ID", flags->words, "Ids or patterns; default: all");
  view->add_flag("--json", flags->json, "One JSON object per line");
  if (show == &run_table) view->add_option("--out", flags->runner.out, "Folder of the results")->required();
  add_settings_flags(*view, flags->runner.settings);
  view->callback([flags, &program, show] {
    flags->runner.machine = this_machine(program);
    show(*flags);
  });
}

}  // namespace

void add_experiment_command(CLI::App& app) {
  auto* command = app.add_subcommand("experiment", "The reference's experiments with their published figures");
  command->require_subcommand(1);
  add_view(*command, app, "list", "All experiments, the published figures, and whether they can run here", &run_list);
  add_run(*command, app);
  add_view(*command, app, "table", "Our results next to theirs, in markdown", &run_table);
}

}  // namespace epipe::cli
