#include "epipe/train/config.h"

namespace epipe::train {

std::vector<Setting> settings_of(TrainConfig& config) {
  std::vector<Setting> all;
  std::string_view section;
#define SECTION(heading) section = heading;
#define SETTING(name, type, value, scope, check, help) \
  all.push_back(make_setting<type>(#name, config.name, type{value}, Scope::scope, section, check, help));
#include "epipe/train/settings.def"
#undef SECTION
#undef SETTING
  return all;
}

std::map<std::string, std::string> texts_of(const TrainConfig& config, std::initializer_list<Scope> scopes) {
  TrainConfig copy = config;
  return texts_of(settings_of(copy), scopes);
}

OptimizerConfig optimizer_config(const SharedSettings& s) {
  return {parse_optimizer(s.optimizer), s.momentum, s.nesterov, s.weight_decay, s.beta1, s.beta2, s.eps};
}

std::string to_toml(const TrainConfig& config) {
  TrainConfig copy = config;
  return "[train]\n" + to_toml(settings_of(copy));
}

}  // namespace epipe::train
