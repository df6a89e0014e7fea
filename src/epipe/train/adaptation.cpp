#include "epipe/train/adaptation.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <stdexcept>

#include "epipe/model/adapter.h"
#include "epipe/model/costs.h"

namespace epipe::train {
namespace {

struct Range {
  std::size_t first;
  std::size_t last;
};

// "2-5"; nullopt if the text is not a range.
std::optional<Range> parse_range(const std::string& text) {
  Range range{};
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto last = std::from_chars(first.ptr + 1, end, range.last);
  if (last.ec != std::errc() || last.ptr != end || range.last < range.first) return std::nullopt;
  return range;
}

}  // namespace

std::vector<std::size_t> layers_named(std::string_view flag, const std::vector<std::string>& names,
                                      const model::Architecture& architecture) {
  std::set<std::size_t> layers;
  for (const std::string& name : names) {
    Range range{};
    if (const auto given = parse_range(name)) {
      range = *given;
    } else {
      range.first = range.last = model::resolve_cut(name, architecture);
    }
    if (range.last >= architecture.layers.size()) {
      throw std::invalid_argument(
          fmt::format("{} names layer {}, but the last of {} is {}", flag, range.last, architecture.name, architecture.layers.size() - 1));
    }
    for (std::size_t l = range.first; l <= range.last; ++l) layers.insert(l);
  }
  return {layers.begin(), layers.end()};
}

std::string whole_lora(const TrainConfig& config, const model::Architecture& architecture) {
  std::optional<layer::LoraConfig> lora;
  if (!config.lora.empty()) lora = layer::parse_lora(config.lora);
  if (lora && lora->targets.empty()) lora->targets = architecture.lora_targets;
  if (!config.adapter.empty()) {
    auto read = model::read_adapter_config(config.adapter);
    if (!read) throw std::runtime_error(read.error().message);
    if (lora && layer::to_string(*lora) != layer::to_string(read.value())) {
      throw std::invalid_argument(fmt::format("--lora is {}, but the adapter in {} is {}; leave --lora out", layer::to_string(*lora),
                                              config.adapter, layer::to_string(read.value())));
    }
    lora = std::move(read).value();
  }
  if (!lora) return "";
  return layer::to_string(*lora);
}

model::Adaptation adaptation_of(const Plan& plan) {
  model::Adaptation adaptation{plan.frozen, {}, plan.base_precision == "bf16"};
  if (!plan.lora.empty()) adaptation.lora = layer::parse_lora(plan.lora);
  return adaptation;
}

model::Adaptation adaptation_of(const TrainConfig& config, const model::Architecture& architecture) {
  Plan plan;
  plan.base_precision = config.base_precision;
  plan.frozen = layers_named("--freeze", config.freeze, architecture);
  plan.lora = whole_lora(config, architecture);
  return adaptation_of(plan);
}

model::Architecture make_architecture(const Registry& registry, const std::string& model, const data::DataSpec& data, std::uint64_t seed,
                                      const model::Adaptation& adaptation) {
  model::Architecture architecture = registry.models.architecture(model, data, seed);
  model::adapt(architecture, adaptation);
  return architecture;
}

}  // namespace epipe::train
