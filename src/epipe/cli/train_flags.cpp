#include "epipe/cli/train_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "epipe/cli/command.h"
#include "epipe/cli/device_flag.h"
#include "epipe/cli/measurement.h"
#include "epipe/cli/setting_flags.h"
#include "epipe/data/open.h"
#include "epipe/model/learned_codec.h"
#include "epipe/model/model.h"
#include "epipe/schedule/generate.h"

namespace epipe::cli {
namespace {

using train::TrainConfig;

// First and last stage here, one server for each stage between.
std::vector<int> ring_of_servers(std::size_t servers) {
  std::vector<int> place = {0};
  for (std::size_t s = 1; s <= servers; ++s) place.push_back(static_cast<int>(s));
  place.push_back(0);
  return place;
}

// Checks the spec even if no cut uses it.
void check_codec(std::string_view flag, const std::string& spec) {
  try {
    codec_from_flag(model::split_learned(spec).wire, {}, flag);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  }
}

// Refuses a codec, which would have no effect.
void check_uncut(std::string_view flag, const std::string& spec) {
  if (spec.empty() || spec == "none") return;
  throw UsageError(fmt::format(
      "{} {} codes what crosses a cut, but there is none: cut the model with --cuts or --place, such as --place 0,1, or use none", flag,
      spec));
}

void check_uncut(const TrainConfig& config) {
  check_uncut("--codec", config.codec);
  check_uncut("--codec-forward", config.codec_forward);
  check_uncut("--codec-backward", config.codec_backward);
  if (!config.codec_at.empty()) check_uncut("--codec-at", config.codec_at.front().spec);
}

void check_codecs(const TrainConfig& config) {
  check_codec("--codec", config.codec);
  if (!config.codec_forward.empty()) check_codec("--codec-forward", config.codec_forward);
  if (!config.codec_backward.empty()) check_codec("--codec-backward", config.codec_backward);
  for (const train::CodecAt& at : config.codec_at) check_codec("--codec-at", at.spec);
}

}  // namespace

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t seed = 0;
  if (text == kRandomSeed) {
    if (::getentropy(&seed, sizeof(seed)) != 0) throw Failure("the operating system has no random numbers for --seed random");
    return seed;
  }
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (status != std::errc() || stop != text.data() + text.size()) {
    throw UsageError(fmt::format("--seed: expected a number from 0 to 18446744073709551615, or random, got {}", text));
  }
  return seed;
}

TrainConfig checked(const TrainFlags& flags) {
  TrainConfig config = flags.config;
  check_codecs(config);
  config.seed = seed_of(flags.seed);
  for (const std::string& device : config.devices) check_device("--devices", device);
  if (!config.connect.empty() && config.place.size() == 1) config.place = ring_of_servers(config.connect.size());
  const int workers = *std::max_element(config.place.begin(), config.place.end()) + 1;
  if (!config.connect.empty() && static_cast<std::size_t>(workers) != config.connect.size() + 1) {
    throw UsageError(fmt::format("--place names {} workers, but --connect makes {}: this process and {} servers", workers,
                                 config.connect.size() + 1, config.connect.size()));
  }
  if (!config.connect.empty() && config.replicas > 1) {
    throw UsageError("--replicas are ranks of a cluster (epipe launch), --connect takes one replica to servers: leave one of them out");
  }
  if (config.place.size() > 1 && !config.cuts.empty() && config.cuts.size() + 1 != config.place.size()) {
    throw UsageError(
        fmt::format("{} cuts make {} stages, but --place names {}", config.cuts.size(), config.cuts.size() + 1, config.place.size()));
  }
  if (config.place.size() == 1 && !config.cuts.empty()) {
    config.place.clear();
    for (std::size_t j = 0; j <= config.cuts.size(); ++j) config.place.push_back(static_cast<int>(j));
  }
  if (config.place.size() == 1) check_uncut(config);
  return config;
}

namespace {

// Help that a setting's declaration cannot have; program.cpp adds the names of models, data and losses.
std::string more_help(const train::Setting& setting) {
  if (setting.name == "schedule") return ": " + schedule::schedule_help();
  return "";
}

// --seed takes a word as well as numbers.
void add_flag(CLI::App& command, TrainFlags& flags, const train::Setting& setting) {
  if (setting.name != "seed") {
    add_setting_flag(command, setting, more_help(setting));
    return;
  }
  command.add_option(setting.flag(), flags.seed, std::string(setting.help))->capture_default_str()->group(std::string(setting.section));
}

bool is_of_stages(const train::Setting& setting) {
  constexpr std::array kOfTraining = {"weights", "lora", "freeze", "merge_adapter"};
  if (std::find(kOfTraining.begin(), kOfTraining.end(), setting.name) != kOfTraining.end()) return false;
  return setting.section == train::kDataSection || setting.section == train::kStageSection;
}

void add_no_augment(CLI::App& command, TrainConfig& config) {
  command
      .add_flag_callback(
          "--no-augment", [&config] { config.augment = "none"; }, "The same as --augment none")
      ->configurable(false)
      ->group(std::string(train::kDataSection));
}

}  // namespace

void add_stage_flags(CLI::App& command, TrainFlags& flags) {
  for (const train::Setting& setting : train::settings_of(flags.config)) {
    if (is_of_stages(setting)) add_flag(command, flags, setting);
  }
  add_no_augment(command, flags.config);
}

void add_named_flag(CLI::App& command, TrainFlags& flags, std::string_view name) {
  for (const train::Setting& setting : train::settings_of(flags.config)) {
    if (setting.name == name) add_flag(command, flags, setting);
  }
}

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  for (const train::Setting& setting : train::settings_of(flags.config)) add_flag(command, flags, setting);
  add_no_augment(command, flags.config);
  command
      .add_flag("--resume", flags.config.resume,
                "Continue from the newest checkpoint of the run directory; missing flags are taken from its config.toml")
      ->configurable(false)
      ->group(std::string(train::kRunSection));
  add_security_flags(command, flags.security, false);
}

}  // namespace epipe::cli
