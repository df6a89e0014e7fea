#include "epipe/model/portable.h"

#include <algorithm>
#include <stdexcept>

#include "epipe/model/model.h"
#include "epipe/model/roberta_config.h"

namespace epipe::model {
namespace {

constexpr std::string_view kRobertaScheme = "roberta:";

}  // namespace

std::string portable_name(std::string_view name) {
  if (!name.starts_with(kRobertaScheme)) return std::string(name);
  const auto config = roberta_config_of(std::string(name.substr(kRobertaScheme.size())));
  if (!config) throw std::invalid_argument(config.error().message);
  return std::string(kRobertaScheme) + to_json_text(config.value());
}

bool is_portable(std::string_view name) {
  if (name.starts_with(kRobertaScheme)) return name.substr(kRobertaScheme.size()).starts_with('{');
  const auto names = model_names();
  return name.find(':') == std::string_view::npos && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace epipe::model
