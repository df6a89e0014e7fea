// epipe inspect: statistics of the tensors that cross a run's cuts
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/resume.h"
#include "epipe/cli/train_flags.h"
#include "epipe/report/page.h"
#include "epipe/train/inspection.h"

namespace epipe::cli {
namespace {

using nlohmann::ordered_json;

struct InspectFlags {
  TrainFlags train;
  // Codecs to compare at 8, 4, 2 and 1 bits per value, and codecs with a fixed rate.
  train::InspectConfig how{
      3,
      {"fp16",      "uniform:8", "sort:6+2", "fast:6+2", "auto:8", "uniform:4", "kmeans:4", "sort:3+1", "ec:4",     "dct:4",  "auto:4",
       "uniform:2", "kmeans:2",  "ec:2",     "dct:2",    "auto:2", "ec:1",      "dct:1",    "auto:1",   "topk:0.1", "power:4"},
      ""};
  std::string run;
  bool json = false;
};

// Prints only the notes for the user.
class Notes final : public train::Observer {
 public:
  void on_step(const train::Progress& p) override { fmt::print(stderr, "step {}/{}  loss {:.4f}\n", p.step, p.total_steps, p.loss); }
  void on_epoch(const train::EpochResult& /*epoch*/) override {}
  void on_note(const std::string& text) override { fmt::print(stderr, "{}\n", text); }
};

// The configuration of a finished run, overridden by the flags given here.
train::TrainConfig config_of_run(const CLI::App& inspect, const std::string& run) {
  if (!has_config(run)) throw Failure(run + " is not a run directory: it has no config.toml (epipe train --run-dir)");
  TrainFlags flags = flags_of_run(run, inspect);
  flags.config.connect.clear();  // all workers are threads of this process
  const auto files = list_folder(run);
  const bool trained = std::find(files.begin(), files.end(), "model.safetensors") != files.end();
  if (inspect.count("--weights") == 0 && trained) flags.config.weights = run + "/model.safetensors";
  flags.config.run_dir = run;
  return checked(flags);
}

void write_inspection_report(const std::string& folder, const ordered_json& inspection) {
  const std::string text = inspection.dump() + "\n";
  value_or_fail(make_folders(folder));
  value_or_fail(write_file(folder + "/inspect.json", {std::as_bytes(std::span(text))}));
  const std::string page = report::page({value_or_fail(report::read_run(folder))});
  value_or_fail(write_file(folder + "/report.html", {std::as_bytes(std::span(page))}));
}

// From many bits to few, so that codecs of equal rates are adjacent. Rates within a tenth of each other count as equal.
void print_codecs(const ordered_json& cut) {
  auto rows = cut.at("codecs").get<std::vector<ordered_json>>();
  const auto number = [](const ordered_json& row, const char* name) { return row.value(name, -1.0); };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return number(a, "bits_per_value") > number(b, "bits_per_value"); });
  const auto beats = [&](const ordered_json& rival, const ordered_json& row) {
    return !rival.contains("failed") && number(rival, "bits_per_value") <= 1.1 * number(row, "bits_per_value") &&
           number(rival, "rel_error") < number(row, "rel_error");
  };
  for (const auto& row : rows) {
    const bool beaten = std::any_of(rows.begin(), rows.end(), [&](const auto& rival) { return beats(rival, row); });
    const std::string figures =
        fmt::format("{:>10.4g} {:>10.3e}{}", number(row, "bits_per_value"), number(row, "rel_error"), beaten ? "" : " *");
    fmt::print("{:<3} {:<8} {:<12} {}\n", cut.at("cut").get<int>(), cut.at("direction").get<std::string>(),
               row.at("codec").get<std::string>(), row.contains("failed") ? "failed: " + row.at("failed").get<std::string>() : figures);
  }
}

void print_inspection(const ordered_json& inspection) {
  fmt::print("{:<3} {:<8} {:<22} {:>10} {:>8} {:>10} {:>10} {:>10} {:>9}\n", "cut", "", "into", "values", "zeros %", "min", "max", "std",
             "kurtosis");
  for (const auto& cut : inspection.at("cuts")) {
    const auto number = [&](const char* name) { return cut.at(name).get<double>(); };
    fmt::print("{:<3} {:<8} {:<22} {:>10} {:>8.2f} {:>10.3g} {:>10.3g} {:>10.3g} {:>9.3g}\n", cut.at("cut").get<int>(),
               cut.at("direction").get<std::string>(), cut.at("layer").get<std::string>(), cut.at("values").get<std::int64_t>(),
               100 * number("zeros") / number("values"), number("min"), number("max"), number("std"), number("kurtosis"));
  }
  fmt::print("\n{:<3} {:<8} {:<12} {:>10} {:>10}\n", "cut", "", "codec", "bits/value", "rel_error");
  for (const auto& cut : inspection.at("cuts")) print_codecs(cut);
  fmt::print("* errs less than all that take as many bits or fewer\n");
}

void run_inspect(const train::Registry& registry, const InspectFlags& flags, const CLI::App& command) {
  keep_files_private();
  try {
    train::TrainConfig config = flags.run.empty() ? checked(flags.train) : config_of_run(command, flags.run);
    const std::string folder = config.run_dir;
    if (folder.empty() && !flags.json)
      throw UsageError("expected a run directory, or --run-dir for the report of a run made of flags, or --json");
    Notes notes;
    const ordered_json inspection = train::inspect(registry, config, flags.how, notes);
    if (!folder.empty()) write_inspection_report(folder, inspection);
    if (flags.json) {
      fmt::print("{}\n", inspection.dump());
    } else {
      print_inspection(inspection);
      fmt::print("\nwrote {0}/inspect.json and {0}/report.html\n", folder);
    }
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_inspect_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<InspectFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("inspect", "Histograms of what crosses the cuts, and the error of every codec on it");
  auto* const run =
      command->add_option("RUN", flags->run, "A run directory: its configuration, from its trained weights; flags below override");
  command->add_option("--steps", flags->how.steps, "Training steps to look at")->check(CLI::Range(1, 100000))->capture_default_str();
  command->add_option("--codecs", flags->how.codecs, "Codecs whose error is measured, shown by the bits they take")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dump", flags->how.dump, "Folder for the tensors as .npy files");
  command->add_flag("--json", flags->json, "Print what inspect.json holds");
  command->add_option("--run-dir", flags->train.config.run_dir, "Without RUN: folder for inspect.json and report.html")->excludes(run);
  for (const char* const name : {"weights", "optimizer", "lr"}) add_named_flag(*command, flags->train, name);
  add_stage_flags(*command, flags->train);
  command->callback([flags, command, &registry] { run_inspect(registry, *flags, *command); });
}

}  // namespace epipe::cli
