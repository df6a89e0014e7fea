// epipe info: the capabilities of this build on this machine, or the layers of a model
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "epipe/base/amx.h"
#include "epipe/cli/command.h"
#include "epipe/cli/manual/completion.h"
#include "epipe/cli/manual/man_pages.h"
#include "epipe/cli/model_info.h"
#include "epipe/codec/kernels/cuda_part.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/data/fetch/archive.h"
#include "epipe/data/image/image.h"
#include "epipe/data/text/tokenizer/normal_form.h"
#include "epipe/data/text/tokenizer/regex.h"
#include "epipe/monitor/metric_page.h"
#include "epipe/transport/build_parts.h"
#include "epipe/wire/frame.h"

namespace epipe::cli {
namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names = {std::string(kernels::scalar().name)};
  for (const kernels::Kernels* wide : {kernels::avx2(), kernels::avx512()}) {
    if (wide != nullptr) names.emplace_back(wide->name);
  }
  return names;
}

std::string_view amx_name(Amx amx) {
  switch (amx) {
    case Amx::kAbsent: return "absent";
    case Amx::kGranted: return "granted";
    case Amx::kRefused: return "refused";
    case Amx::kIncomplete: return "incomplete";
  }
  return "";
}

nlohmann::ordered_json json_of(const AmxUse& use) {
  nlohmann::ordered_json json = {{"state", amx_name(use.amx)}, {"onednn_limit", nullptr}};
  if (use.onednn_limit) json["onednn_limit"] = *use.onednn_limit;
  return json;
}

std::string kernels_text() {
  const char* const limit = std::getenv("EPIPE_CPU");
  const std::string held = limit == nullptr || *limit == '\0' ? "" : fmt::format(", at most {} by EPIPE_CPU", limit);
  return fmt::format("{} of {}{}", kernels::best().name, fmt::join(instruction_sets(), " "), held);
}

void run_info(bool json) {
  std::vector<Part> parts = {kernels::cuda_part()};
  for (const Part& part : transport::build_parts()) parts.push_back(part);
  parts.push_back(monitor::prometheus_part());
  for (const Part& part : {data::jpeg_part(), data::png_part(), data::zlib_part(), data::pcre2_part(), data::utf8proc_part()}) {
    parts.push_back(part);
  }
  nlohmann::ordered_json info = {{"epipe", EPIPE_VERSION},        {"frame_version", wire::kVersion},
                                 {"compiler", EPIPE_COMPILER},    {"build_type", EPIPE_BUILD_TYPE},
                                 {"libtorch", TORCH_VERSION},     {"cpu_threads", std::thread::hardware_concurrency()},
                                 {"kernels", instruction_sets()}, {"kernels_used", kernels::best().name},
                                 {"amx", json_of(amx_use())}};
  for (const Part& part : parts) info["parts"][part.name] = {{"available", part.available}, {"detail", part.detail}};
  if (json) {
    fmt::print("{}\n", info.dump());
    return;
  }
  fmt::print("epipe {}, frame version {}, {} build by {}\n", EPIPE_VERSION, wire::kVersion, EPIPE_BUILD_TYPE, EPIPE_COMPILER);
  fmt::print("LibTorch  {}\n", TORCH_VERSION);
  fmt::print("kernels   {}; {} hardware threads\n", kernels_text(), std::thread::hardware_concurrency());
  fmt::print("AMX       {}\n", describe(amx_use()));
  for (const Part& part : parts) fmt::print("{:<9} {}{}\n", part.name, part.available ? "" : "no: ", part.detail);
}

void print_completion(const CLI::App& app, const std::string& shell) {
  const auto tree = manual::command_tree(app);
  const std::map<std::string, std::string (*)(const manual::Command&)> scripts = {
      {"bash", manual::bash_completion}, {"zsh", manual::zsh_completion}, {"fish", manual::fish_completion}};
  fmt::print("{}", scripts.at(shell)(tree));
}

}  // namespace

void add_info_command(CLI::App& app, const train::Registry& registry) {
  struct Flags {
    bool json = false;
    std::string man;
    std::string completion;
    ModelInfoFlags model;
  };
  auto flags = std::make_shared<Flags>();  // owned by the callback as well
  auto* info =
      app.add_subcommand("info", "What this build can do on this machine; with --model: parameters and FLOPs of its layers and stages");
  info->add_flag("--json", flags->json, "One JSON object");
  add_model_info_flags(*info, flags->model);
  info->add_option("--man", flags->man, "Write the manual pages of all commands into this folder, and exit");
  info->add_option("--completion", flags->completion, "Print this shell's completion script, and exit")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  info->callback([flags, &registry, &app] {
    if (!flags->man.empty()) return manual::write_man_pages(manual::command_tree(app), EPIPE_VERSION, flags->man);
    if (!flags->completion.empty()) return print_completion(app, flags->completion);
    flags->model.model.empty() ? run_info(flags->json) : print_model_info(registry.models, flags->model, flags->json);
  });
}

}  // namespace epipe::cli
