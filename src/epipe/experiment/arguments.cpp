#include "epipe/experiment/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace epipe::experiment {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

std::string value_in(const Flags& flags, std::string_view name) {
  for (const auto& [key, value] : flags) {
    if (key == name) return value;
  }
  return "";
}

bool has(const Flags& flags, std::string_view name) {
  return std::any_of(flags.begin(), flags.end(), [&](const auto& flag) { return flag.first == name; });
}

// Where a data set may be below the root; the first existing folder is used.
const std::map<std::string, std::vector<std::string>> kFolders = {
    {"cifar10", {"cifar10", "cifar-10-batches-bin"}},
    {"cifar100", {"cifar100", "cifar-100-binary"}},
    {"food101", {"food101", "food-101", "food101-mini"}},
    {"images", {"imagenet", "images"}},
};

std::vector<std::string> folders_of(const std::string& data) {
  if (!data.starts_with("glue/")) return kFolders.at(data);
  std::string task = data.substr(5);
  std::transform(task.begin(), task.end(), task.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (task == "COLA") task = "CoLA";
  return {"glue/" + task, task};
}

// The folder of the data; sets `missing` if there is none.
std::string find_data(const Entry& entry, const Settings& settings, std::string& missing) {
  const auto names = folders_of(entry.data);
  for (const std::string& name : names) {
    const std::string path = settings.data_root + "/" + name;
    if (!settings.data_root.empty() && exists(path)) return path;
  }
  missing = settings.data_root.empty()
                ? fmt::format("--data-root does not say where {} is", entry.data)
                : fmt::format("the data is missing: expected {} in {}", fmt::join(names, " or "), settings.data_root);
  return "";
}

std::string find_weights(const Entry& entry, const Settings& settings, std::string& missing) {
  const auto names = {entry.weights + ".safetensors", entry.weights + ".pth", entry.weights + "/model.safetensors"};
  for (const std::string& name : names) {
    const std::string path = settings.weights_root + "/" + name;
    if (!settings.weights_root.empty() && exists(path)) return path;
  }
  if (settings.from_scratch) return "";
  const std::string where = settings.weights_root.empty() ? "--weights-root" : settings.weights_root;
  missing =
      fmt::format("trained weights are missing: expected {} in {}; --from-scratch begins from fresh ones", fmt::join(names, " or "), where);
  return "";
}

// The devices of all workers or replicas; sets `missing` if there are too few.
std::vector<std::string> find_devices(const Entry& entry, const Settings& settings, const Machine& machine, std::string& missing) {
  const auto wanted = static_cast<std::size_t>(entry.workers * entry.replicas);
  std::vector<std::string> devices = settings.devices;
  if (devices.size() == 1) devices.assign(wanted, settings.devices[0]);
  if (!devices.empty() && devices.size() < wanted) {
    missing = fmt::format("needs {} devices, --devices names {}", wanted, devices.size());
  }
  if (devices.empty()) {
    for (std::string text = value_in(entry.flags, "--devices"); !text.empty();) {
      const std::size_t comma = std::min(text.find(','), text.size());
      devices.push_back(text.substr(0, comma));
      text.erase(0, comma + 1);
    }
    for (std::size_t w = devices.size(); w < wanted; ++w) devices.push_back(fmt::format("cuda:{}", w));
    const auto gpus = std::count_if(devices.begin(), devices.end(), [](const auto& name) { return name.starts_with("cuda"); });
    if (gpus > machine.gpus)
      missing = fmt::format("needs {} GPUs, there are {}; --devices cpu or cuda:0 runs it on one device", gpus, machine.gpus);
  }
  devices.resize(std::min(devices.size(), wanted));
  if (missing.empty() && entry.replicas > 1 && std::count(devices.begin(), devices.end(), devices[0]) < entry.replicas) {
    missing = "all replicas share one --devices: --devices cpu or cuda:0 runs them on one device";
  }
  return devices;
}

int epochs_at(const Entry& entry, double scale) { return std::max(1, static_cast<int>(std::lround(entry.epochs * scale))); }

// Scales epochs, data and warm-up.
Flags scaled(const Entry& entry, const Settings& settings) {
  Flags flags = {{"--epochs", fmt::to_string(epochs_at(entry, settings.scale))}};
  if (settings.scale < 1) flags.emplace_back("--data-part", fmt::to_string(settings.scale));
  if (settings.max_steps > 0) flags.emplace_back("--max-steps", fmt::to_string(settings.max_steps));
  if (entry.warmup > 0) {
    const double batch = std::stod(entry.flag("--batch"));
    const double steps = std::ceil(static_cast<double>(entry.samples) * settings.scale / batch) * epochs_at(entry, settings.scale);
    const double all = settings.max_steps > 0 ? std::min(steps, static_cast<double>(settings.max_steps)) : steps;
    flags.emplace_back("--warmup", fmt::to_string(std::lround(entry.warmup * all)));
  }
  return flags;
}

std::vector<std::string> words_of_flags(const Flags& flags) {
  std::vector<std::string> words;
  for (const auto& [name, value] : flags) {
    words.push_back(name);
    if (!value.empty()) words.push_back(value);
  }
  return words;
}

// Why an entry's note rules it out.
std::string obstacle(const Entry& entry, const Settings& settings) {
  constexpr std::string_view kBlocked = "blocked: ";
  constexpr std::string_view kNeeds = "needs: ";
  if (entry.note.starts_with(kBlocked)) return entry.note.substr(kBlocked.size());
  if (entry.note.starts_with(kNeeds) && !has(settings.extra, "--connect")) return "needs " + entry.note.substr(kNeeds.size());
  return "";
}

// Devices are named by worker, for all replicas.
Call train_call(const Entry& entry, const Settings& settings, Call call, const std::vector<std::string>& devices) {
  const std::string workers = entry.replicas > 1 ? devices.at(0) : call.devices;
  Flags flags = {{"--data", fmt::format("{}:{}", entry.data, call.data)}};
  if (!call.weights.empty()) flags.emplace_back("--weights", call.weights);
  flags = overridden(overridden(overridden(flags, entry.flags), scaled(entry, settings)), {{"--devices", workers}});
  if (entry.kind == Kind::kDataParallel) flags.emplace_back("--replicas", fmt::to_string(entry.replicas));
  if (has(settings.extra, "--connect")) std::erase_if(flags, [](const auto& flag) { return flag.first == "--devices"; });
  flags = overridden(flags, settings.extra);
  if (entry.kind == Kind::kDataParallel) call.words = {"launch", "-n", fmt::to_string(devices.size()), "--"};
  call.words.emplace_back("train");
  for (std::string& word : words_of_flags(flags)) call.words.push_back(std::move(word));
  return call;
}

}  // namespace

std::variant<Call, NotRun> call_of(const Entry& entry, const Settings& settings, const Machine& machine) {
  Call call;
  if (entry.kind == Kind::kParameters) {
    call.words = {"info", "--json"};
    for (std::string& word : words_of_flags(entry.flags)) call.words.push_back(std::move(word));
    return call;
  }
  std::string missing = obstacle(entry, settings);
  if (missing.empty() && entry.kind == Kind::kDataParallel && !machine.replicas)
    missing = "this program has no data parallel (train --replicas)";
  if (missing.empty() && !has(settings.extra, "--data")) call.data = find_data(entry, settings, missing);
  if (missing.empty() && !entry.weights.empty() && !has(settings.extra, "--weights")) call.weights = find_weights(entry, settings, missing);
  std::vector<std::string> devices;
  if (missing.empty() && !has(settings.extra, "--connect")) devices = find_devices(entry, settings, machine, missing);
  if (!missing.empty()) return NotRun{missing};
  call.devices = fmt::format("{}", fmt::join(devices, ","));
  return train_call(entry, settings, std::move(call), devices);
}

std::string settings_text(const Settings& settings, const Call& call) {
  std::string text = fmt::format("scale {}", settings.scale);
  if (settings.max_steps > 0) text += fmt::format(", at most {} steps", settings.max_steps);
  if (!call.devices.empty()) text += fmt::format(", on {}", call.devices);
  if (settings.from_scratch && call.weights.empty()) text += ", from scratch";
  for (const auto& [name, value] : settings.extra) text += fmt::format(", {}{}{}", name, value.empty() ? "" : " ", value);
  return text;
}

}  // namespace epipe::experiment
