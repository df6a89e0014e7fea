#include "epipe/cli/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/usage.h"
#include "epipe/train/cluster.h"

namespace epipe::cli {
namespace {

// Overrides options of `train` by those set in `given`.
void override_options(CLI::App& train, const CLI::App& given) {
  for (const CLI::Option* const option : given.get_options()) {
    auto* const same = train.get_option_no_throw(option->get_name());
    if (same == nullptr || option->count() == 0) continue;
    same->clear();
    for (const std::string& value : option->results()) same->add_result(value);
    same->run_callback();
  }
}

// The client's authentication flags, which config.toml does not have.
std::string security_words(const SecurityFlags& flags) {
  std::string words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words += fmt::format(" {} {}", flag, shell_word(value));
  };
  add("--tls", flags.tls);
  add("--ca", flags.ca);
  add("--cert", flags.certificate);
  add("--key", flags.key);
  add("--token-file", flags.token_file);
  return flags.insecure ? words + " --insecure" : words;
}

}  // namespace

bool has_config(const std::string& run_dir) {
  const auto files = list_folder(run_dir);
  return std::find(files.begin(), files.end(), "config.toml") != files.end();
}

TrainFlags flags_of_run(const std::string& run_dir, const CLI::App& given) {
  TrainFlags flags;
  CLI::App program;
  program.set_config("--config");
  program.allow_config_extras(CLI::config_extras_mode::error);
  auto* const train = program.add_subcommand("train");
  add_train_flags(*train, flags);
  const std::string file = run_dir + "/config.toml";
  try {
    program.parse(std::vector<std::string>{"train", file, "--config"});  // CLI11 takes the last word first
    override_options(*train, given);
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}{}; expected what epipe train wrote there: mend it, or move it away and give the run's flags",
                                 place_in_file(file, "train", error), error.what()));
  }
  return flags;
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string resume_command(const TrainFlags& flags) {
  const std::string train = fmt::format("train --resume --run-dir {}{}", shell_word(flags.config.run_dir), security_words(flags.security));
  if (const char* const launch = std::getenv(kLaunch)) return fmt::format("{} {}", launch, train);
  const std::string alone = fmt::format("{} {}", shell_word(program_invocation_name), train);
  return transport::launched_as_rank() ? alone + ", on every rank" : alone;
}

}  // namespace epipe::cli
