#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "epipe/schedule/generate.h"
#include "epipe/train/lr_schedule.h"
#include "epipe/train/optimizer.h"
#include "epipe/train/setting.h"

namespace epipe::train {

// Includes settings.def twice: for the settings that all processes of a run share, then for the rest.
#define SECTION(heading)

struct SharedSettings {
#define EPIPE_IF_kAll(member) member
#define EPIPE_IF_kResolved(member)
#define EPIPE_IF_kClient(member)
#define EPIPE_IF_kClientMayChange(member)
#define EPIPE_IF_kProcess(member)
#define SETTING(name, type, value, scope, check, help) EPIPE_IF_##scope(type name = value;)
#include "epipe/train/settings.def"
#undef EPIPE_IF_kAll
#undef EPIPE_IF_kResolved
#undef EPIPE_IF_kClient
#undef EPIPE_IF_kClientMayChange
#undef EPIPE_IF_kProcess
};

// All settings of a run, named like the flags of `epipe train`.
struct TrainConfig : SharedSettings {
#define EPIPE_IF_kAll(member)
#define EPIPE_IF_kResolved(member) member
#define EPIPE_IF_kClient(member) member
#define EPIPE_IF_kClientMayChange(member) member
#define EPIPE_IF_kProcess(member) member
#include "epipe/train/settings.def"
#undef EPIPE_IF_kAll
#undef EPIPE_IF_kResolved
#undef EPIPE_IF_kClient
#undef EPIPE_IF_kClientMayChange
#undef EPIPE_IF_kProcess
#undef SETTING

  bool resume = false;  // from the newest checkpoint of run_dir
  int local_rank = 0;   // of this process among the ranks of its machine; no flag
};

#undef SECTION

// All settings, bound to this configuration, which outlives them; in the order of settings.def.
std::vector<Setting> settings_of(TrainConfig& config);

// The settings of these scopes as text, by name.
std::map<std::string, std::string> texts_of(const TrainConfig& config, std::initializer_list<Scope> scopes);

OptimizerConfig optimizer_config(const SharedSettings& settings);

// The configuration as the text of a TOML file that `epipe train --config` reads back.
std::string to_toml(const TrainConfig& config);

}  // namespace epipe::train
