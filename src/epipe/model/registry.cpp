#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "epipe/layer/modules.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

struct Entry {
  std::string_view name;
  Layers (*make)(const data::DataSpec&);
};

constexpr std::array kZoo = {
    Entry{"mlp", make_mlp},
    Entry{"cnn", make_cnn},
    Entry{"transformer", make_transformer},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kZoo) names.emplace_back(entry.name);
  return names;
}

Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) {
  const auto* const found = std::find_if(kZoo.begin(), kZoo.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == kZoo.end())
    throw std::invalid_argument(fmt::format("unknown model \"{}\"; known are {}", name, fmt::join(model_names(), ", ")));
  Model model{std::string(name), found->make(data)};
  for (const auto& layer : model.layers) layer::initialize(*layer, seed);
  return model;
}

}  // namespace epipe::model
