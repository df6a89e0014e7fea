#include "epipe/model/adaptation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/layer/modules.h"

namespace epipe::model {
namespace {

// Leaves scales and biases: they are few, and their precision matters in sums.
void halve_matrices(layer::Layer& layer) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : layer.parameters()) {
    if (!parameter.requires_grad() && parameter.dim() >= 2) parameter.set_data(parameter.to(torch::kBFloat16));
  }
}

void freeze(layer::Layer& layer) {
  for (auto& parameter : layer.parameters()) parameter.set_requires_grad(false);
}

struct LayerAdaptation {
  std::optional<layer::LoraConfig> lora;
  bool frozen = false;
  bool keeps_head = false;  // trained as it is, beside LoRA
  bool half_base = false;
};

void adapt(layer::Layer& layer, const LayerAdaptation& how) {
  if (how.lora && !how.frozen && !how.keeps_head) layer::add_lora(layer, *how.lora);
  if (how.frozen) freeze(layer);
  if (how.half_base) halve_matrices(layer);
}

std::vector<std::string> linear_names(const layer::Layer& layer) {
  std::vector<std::string> names;
  for (const auto& module : layer.named_modules("", /*include_self=*/false)) {
    if (dynamic_cast<const layer::Linear*>(module.value().get()) == nullptr) continue;
    names.push_back(module.key().substr(module.key().rfind('.') + 1));
  }
  return names;
}

// Each target must exist in some layer; the error lists the names that do.
void check_targets(const Architecture& architecture, const layer::LoraConfig& lora, const std::vector<std::size_t>& frozen) {
  std::vector<std::string> there;
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    if (std::find(frozen.begin(), frozen.end(), l) != frozen.end()) continue;
    for (std::string& name : linear_names(*architecture.layers[l].make())) {
      if (std::find(there.begin(), there.end(), name) == there.end()) there.push_back(std::move(name));
    }
  }
  for (const std::string& target : lora.targets) {
    if (std::find(there.begin(), there.end(), target) != there.end()) continue;
    throw std::invalid_argument(fmt::format("LoRA's target {} is not a trained linear layer of {}; there are {}", target, architecture.name,
                                            fmt::join(there, ", ")));
  }
}

}  // namespace

void adapt(Architecture& architecture, const Adaptation& adaptation) {
  if (adaptation.frozen.empty() && !adaptation.lora && !adaptation.half_base) return;
  LayerAdaptation how{adaptation.lora, false, false, adaptation.half_base};
  if (how.lora && how.lora->targets.empty()) how.lora->targets = architecture.lora_targets;
  if (how.lora && how.lora->targets.empty()) {
    throw std::invalid_argument(fmt::format("say which linear layers of {} LoRA adapts: targets=NAME+NAME", architecture.name));
  }
  if (how.lora) check_targets(architecture, *how.lora, adaptation.frozen);
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    LayerAdaptation own = how;
    own.frozen = std::find(adaptation.frozen.begin(), adaptation.frozen.end(), l) != adaptation.frozen.end();
    own.keeps_head = architecture.task_head && l + 1 == architecture.layers.size();
    auto& make = architecture.layers[l].make;
    make = [plain = std::move(make), own] {
      auto layer = plain();
      adapt(*layer, own);
      return layer;
    };
  }
}

std::size_t first_trained(const Architecture& architecture) {
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    const auto layer = architecture.layers[l].make();
    for (const auto& parameter : layer->parameters()) {
      if (parameter.requires_grad()) return l;
    }
  }
  return architecture.layers.size();
}

}  // namespace epipe::model
