#include "epipe/model/portable.h"

#include <algorithm>
#include <stdexcept>

#include "epipe/model/model.h"
#include "epipe/model/roberta_config.h"

namespace epipe::model {
namespace {

constexpr std::string_view kRoberta = "roberta:";

}  // namespace

std::string portable_name(std::string_view name) {
  if (!name.starts_with(kRoberta)) return std::string(name);
  const auto config = roberta_config_of(std::string(name.substr(kRoberta.size())));
  if (!config) throw std::invalid_argument(config.error().message);
  return std::string(kRoberta) + to_json_text(config.value());
}

bool is_portable(std::string_view name) {
  if (name.starts_with(kRoberta)) return name.substr(kRoberta.size()).starts_with('{');
  const auto names = model_names();
  return name.find(':') == std::string_view::npos && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace epipe::model
