#include "epipe/model/registry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "epipe/layer/random.h"
#include "epipe/model/script_files.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using InputKind = data::DataSpec::Kind;

// While it lives, PyTorch's generator draws by the key; afterwards it continues where it was. One at a time for all registries: the
// generator belongs to the process.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t key) : alone_(mutex()), generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(key);
  }
  ~SeededGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex the;  // a factory may make another model
    return the;
  }

  std::lock_guard<std::recursive_mutex> alone_;
  at::Generator generator_;
  torch::Tensor before_;
};

bool is_optional(const std::string& argument) { return argument.starts_with('['); }

std::string as_written(const Registry::Entry& entry) {
  if (entry.argument.empty() || is_optional(entry.argument)) return entry.name;
  return fmt::format("{}:{}", entry.name, entry.argument);
}

// "roberta:DIR" -> "roberta", "DIR"
std::pair<std::string_view, std::string> split(std::string_view text) {
  const auto colon = text.find(':');
  return {text.substr(0, colon), std::string(colon == std::string_view::npos ? "" : text.substr(colon + 1))};
}

}  // namespace

void Registry::add(Entry entry) {
  if (entry.name.empty() || entry.name.find_first_of(": ,\"'\n") != std::string::npos) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is not a valid name for a model: expected one without colons, commas, quotes and spaces", entry.name));
  }
  if (!entry.factory) throw std::invalid_argument(fmt::format("the model {} has no factory", entry.name));
  if (find(entry.name) != nullptr) throw std::invalid_argument(fmt::format("a model {} exists already; choose another name", entry.name));
  entries_.push_back(std::move(entry));
}

void Registry::replace(Entry entry) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) { return other.name == entry.name; });
  if (found == entries_.end()) return add(std::move(entry));
  *found = std::move(entry);
}

const Registry::Entry* Registry::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

// The entry and the argument of a name such as "roberta:DIR".
std::pair<const Registry::Entry*, std::string> Registry::parse(std::string_view text) const {
  const auto [name, argument] = split(text);
  const Entry* const found = find(name);
  if (found == nullptr) throw std::invalid_argument(fmt::format("unknown model \"{}\"; known are {}", text, fmt::join(names(), ", ")));
  if (!argument.empty() && found->argument.empty()) {
    throw std::invalid_argument(fmt::format("{} takes no argument, got \"{}\"", name, text));
  }
  if (argument.empty() && !found->argument.empty() && !is_optional(found->argument)) {
    throw std::invalid_argument(fmt::format("expected {}, got \"{}\"", as_written(*found), text));
  }
  return {found, argument};
}

Architecture Registry::architecture(std::string_view name, const data::DataSpec& data, std::uint64_t seed) const {
  const auto [entry, argument] = parse(name);
  const SeededGenerator seeded(layer::key_of(seed, entry->name));
  Architecture made = entry->factory(data, argument);
  made.name = name;
  return made;
}

Model Registry::build_model(std::string_view name, const data::DataSpec& data) const { return build(architecture(name, data)); }

Model Registry::make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) const {
  Model model = build(architecture(name, data, seed));
  initialize(model, seed);
  return model;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) all.push_back(as_written(entry));
  return all;
}

bool Registry::takes_text(std::string_view name) const { return parse(name).first->input == InputKind::kText; }

std::string Registry::portable_name(std::string_view name) const {
  const auto [entry, argument] = parse(name);
  if (!entry->to_portable || is_portable(name)) return std::string(name);
  return fmt::format("{}:{}", entry->name, entry->to_portable(argument));
}

bool Registry::is_portable(std::string_view text) const {
  const auto [name, argument] = split(text);
  const Entry* const entry = find(name);
  if (entry == nullptr) return false;
  if (text.find(':') == std::string_view::npos) return entry->argument.empty() || is_optional(entry->argument);
  return !entry->portable_prefix.empty() && argument.starts_with(entry->portable_prefix);
}

Registry builtin_models() {
  constexpr auto kImages = InputKind::kImages;
  constexpr auto kText = InputKind::kText;
  Registry models;
  models.add({"mlp", "", kImages, make_mlp});
  models.add({"cnn", "", kImages, make_cnn});
  models.add({"transformer", "", kText, make_transformer});
  models.add({"mobilenet_v2", "", kImages, make_mobilenet_v2});
  models.add({"resnet18", "", kImages, make_resnet18});
  models.add({"resnet50", "", kImages, make_resnet50});
  models.add({"resnet101", "", kImages, make_resnet101});
  models.add({"vgg13", "", kImages, make_vgg13});
  models.add({"amoebanet_d", "[CELLSxFILTERS]", kImages, make_amoebanet_d});
  models.add({"roberta-base", "", kText, make_roberta_base});
  models.add({"roberta", "DIR", kText, make_roberta, "{", encoder_config_text});
  models.add({"hf", "DIR", kText, make_hf, "{", hf_config_text});
  models.add(torchscript_entry());
  return models;
}

void require_images(std::string_view model, const data::DataSpec& data) {
  if (data.kind == InputKind::kImages && data.shape.size() == 3) return;
  throw std::invalid_argument(fmt::format("{} takes images [C, H, W], got {} of shape [{}]", model,
                                          data.kind == InputKind::kText ? "text" : "samples", fmt::join(data.shape, ", ")));
}

void require_text(std::string_view model, const data::DataSpec& data) {
  if (data.kind == InputKind::kText && data.shape.size() == 1) return;
  throw std::invalid_argument(fmt::format("{} takes text [T]; images of shape [{}] need cnn, mobilenet_v2 or another model for images",
                                          model, fmt::join(data.shape, ", ")));
}

}  // namespace epipe::model
