#include "epipe/layer/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "epipe/layer/modules.h"

namespace epipe::layer {
namespace {

constexpr std::int64_t kMaxRank = 4096;
constexpr std::size_t kMaxTargets = 64;

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw std::invalid_argument(
      fmt::format("expected a LoRA such as r=8,alpha=16,dropout=0,targets=q_proj+v_proj, got \"{}\": {}", text, why));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

double number(std::string_view whole, std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) refuse(whole, fmt::format("\"{}\" is not a number", text));
  return value;
}

void check(std::string_view text, const LoraConfig& config) {
  if (config.rank < 1 || config.rank > kMaxRank) refuse(text, fmt::format("r is from 1 to {}", kMaxRank));
  if (!(config.alpha > 0 && config.alpha <= 1e6)) refuse(text, "alpha is above 0");
  if (!(config.dropout >= 0 && config.dropout < 1)) refuse(text, "dropout is from 0 to below 1");
  if (config.targets.size() > kMaxTargets) refuse(text, fmt::format("at most {} targets", kMaxTargets));
}

bool is_target(const std::string& name, const LoraConfig& config) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return std::find(config.targets.begin(), config.targets.end(), last) != config.targets.end();
}

}  // namespace

LoraConfig parse_lora(std::string_view text) {
  LoraConfig config;
  for (const std::string& part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "targets") {
      config.targets = split(value, '+');
    } else if (key == "r") {
      const double rank = number(text, value);
      config.rank = rank >= 1 && rank <= static_cast<double>(kMaxRank) ? static_cast<std::int64_t>(rank) : 0;
      if (static_cast<double>(config.rank) != rank) refuse(text, fmt::format("r is a whole number from 1 to {}", kMaxRank));
    } else if (key == "alpha") {
      config.alpha = number(text, value);
    } else if (key == "dropout") {
      config.dropout = number(text, value);
    } else {
      refuse(text, fmt::format("there is no \"{}\"", key));
    }
  }
  check(text, config);
  return config;
}

std::string to_string(const LoraConfig& config) {
  std::string text = fmt::format("r={},alpha={}", config.rank, config.alpha);
  if (config.dropout > 0) text += fmt::format(",dropout={}", config.dropout);
  if (!config.targets.empty()) text += fmt::format(",targets={}", fmt::join(config.targets, "+"));
  return text;
}

std::size_t add_lora(Layer& layer, const LoraConfig& config) {
  for (auto& parameter : layer.parameters()) parameter.set_requires_grad(false);
  std::size_t found = 0;
  for (const auto& module : layer.named_modules("", /*include_self=*/false)) {
    auto* const linear = dynamic_cast<Linear*>(module.value().get());
    if (linear == nullptr || !is_target(module.key(), config)) continue;
    linear->add_lora(config, layer.full_name(module.key()));
    ++found;
  }
  return found;
}

bool is_lora(std::string_view name) { return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"); }

}  // namespace epipe::layer
