#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using InputKind = data::DataSpec::Kind;

struct Entry {
  std::string_view name;
  std::string_view argument;  // "" where it takes none; in brackets where it may be left out
  InputKind kind;
  Layers (*make)(const data::DataSpec&, const std::string&);
};

constexpr std::array kZoo = {
    Entry{"mlp", "", InputKind::kImages, make_mlp},
    Entry{"cnn", "", InputKind::kImages, make_cnn},
    Entry{"transformer", "", InputKind::kText, make_transformer},
    Entry{"mobilenet_v2", "", InputKind::kImages, make_mobilenet_v2},
    Entry{"resnet18", "", InputKind::kImages, make_resnet18},
    Entry{"resnet50", "", InputKind::kImages, make_resnet50},
    Entry{"resnet101", "", InputKind::kImages, make_resnet101},
    Entry{"vgg13", "", InputKind::kImages, make_vgg13},
    Entry{"amoebanet_d", "[CELLSxFILTERS]", InputKind::kImages, make_amoebanet_d},
    Entry{"roberta-base", "", InputKind::kText, make_roberta_base},
    Entry{"roberta", "DIR", InputKind::kText, make_roberta},
    Entry{"torchscript", "FILE", InputKind::kImages, make_torchscript},
};

// The entry and the argument that a name such as "roberta:DIR" gives it.
std::pair<const Entry*, std::string> find(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string argument(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  const auto* const found = std::find_if(kZoo.begin(), kZoo.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == kZoo.end()) {
    throw std::invalid_argument(fmt::format("unknown model \"{}\"; known are {}", text, fmt::join(model_names(), ", ")));
  }
  const bool optional = found->argument.starts_with('[');
  if (!argument.empty() && found->argument.empty()) {
    throw std::invalid_argument(fmt::format("{} takes no argument, got \"{}\"", name, text));
  }
  if (argument.empty() && !found->argument.empty() && !optional) {
    throw std::invalid_argument(fmt::format("expected {}:{}, got \"{}\"", name, found->argument, text));
  }
  return {found, argument};
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kZoo) {
    const bool optional = entry.argument.starts_with('[');
    names.push_back(fmt::format("{}{}{}", entry.name, entry.argument.empty() || optional ? "" : ":", optional ? "" : entry.argument));
  }
  return names;
}

bool takes_text(std::string_view name) { return find(name).first->kind == InputKind::kText; }

Model build_model(std::string_view name, const data::DataSpec& data) {
  const auto [entry, argument] = find(name);
  Model model{std::string(name), entry->make(data, argument)};
  if (entry->make == make_torchscript) describe_torchscript(model);
  return model;
}

Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) {
  Model model = build_model(name, data);
  for (const auto& layer : model.layers) layer->initialize(seed);
  return model;
}

NamedTensors tensors_of(const Model& model) {
  NamedTensors all;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) all[layer->full_name(item.key())] = item.value().detach();
    for (const auto& item : layer->named_buffers()) all[layer->full_name(item.key())] = item.value();
  }
  return all;
}

void require_images(std::string_view model, const data::DataSpec& data) {
  if (data.kind == InputKind::kImages && data.shape.size() == 3) return;
  throw std::invalid_argument(fmt::format("{} takes images [C, H, W], got {} of shape [{}]", model,
                                          data.kind == InputKind::kText ? "text" : "samples", fmt::join(data.shape, ", ")));
}

void require_text(std::string_view model, const data::DataSpec& data) {
  if (data.kind == InputKind::kText && data.shape.size() == 1) return;
  throw std::invalid_argument(fmt::format("{} takes text [T]; images of shape [{}] want cnn, mobilenet_v2 or another model for images",
                                          model, fmt::join(data.shape, ", ")));
}

}  // namespace epipe::model
