#include "epipe/train/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "epipe/base/bounded_json.h"
#include "epipe/base/json_type.h"
#include "epipe/base/printable.h"
#include "epipe/data/sample_values.h"
#include "epipe/layer/random.h"
#include "epipe/train/schedule_costs.h"

namespace epipe::train {
namespace {

using nlohmann::json;

// Far beyond any model, far below what would exhaust a machine by itself.
constexpr std::int64_t kMaxExtent = 1 << 20;
constexpr std::size_t kMaxSampleDims = 8;
constexpr std::uint64_t kMaxSampleValues = 1 << 26;

// 1, without a number, had the client's seed in every process; 2 compared the learning rate and the number of epochs; 3 trained all of a
// model; 4 wrote frozen parameters into every checkpoint.
constexpr int kCheckpointFormat = 5;

constexpr std::array<std::string_view, 10> kResolved = {"data",   "seed",          "cuts",  "codecs",    "loss_scaling",
                                                        "frozen", "first_trained", "delay", "in_flight", "schedule_costs"};

[[noreturn]] void refuse(std::string_view field, std::string_view what) {
  throw std::invalid_argument(fmt::format("the plan's {} {}", field, what));
}

template <typename T>
T get(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) refuse(field, "is missing");
  if (!holds<T>(*found)) refuse(field, "has the wrong type");
  return found->get<T>();
}

std::string get_text(const json& object, const char* field) {
  auto text = get<std::string>(object, field);
  if (text.size() > kMaxTextBytes) refuse(field, fmt::format("is longer than {} bytes", kMaxTextBytes));
  return text;
}

template <typename T>
std::vector<T> get_list(const json& object, const char* field) {
  auto list = get<std::vector<T>>(object, field);
  if (list.size() > kMaxEntries) refuse(field, fmt::format("has more than {} entries", kMaxEntries));
  return list;
}

std::int64_t get_within(const json& object, const char* field, std::int64_t least, std::int64_t most) {
  const auto value = get<std::int64_t>(object, field);
  if (value < least || value > most) refuse(field, fmt::format("is {}, expected {} to {}", value, least, most));
  return value;
}

json data_to_json(const data::DataSpec& data) {
  return {{"kind", data.kind == data::DataSpec::Kind::kText ? "text" : "images"},
          {"shape", data.shape},
          {"classes", data.classes},
          {"vocabulary", data.vocabulary},
          {"regression", data.regression},
          {"next_token", data.next_token}};
}

data::DataSpec data_from_json(const json& object) {
  data::DataSpec data;
  data.kind = get_text(object, "kind") == "text" ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages;
  data.shape = get_list<std::int64_t>(object, "shape");
  for (const std::int64_t extent : data.shape) {
    if (extent < 1 || extent > kMaxExtent) refuse("data shape", fmt::format("has an extent of {}", extent));
  }
  if (data.shape.size() > kMaxSampleDims) refuse("data shape", fmt::format("has more than {} dims", kMaxSampleDims));
  const auto values = data::sample_values(data.shape);
  if (!values || *values > kMaxSampleValues) refuse("data shape", fmt::format("has more than {} values per sample", kMaxSampleValues));
  data.classes = get_within(object, "classes", 1, kMaxExtent);
  data.vocabulary = get_within(object, "vocabulary", 0, kMaxExtent);
  data.regression = get<bool>(object, "regression");
  data.next_token = get<bool>(object, "next_token");
  return data;
}

// The shared settings of a plan, bound to `into`, which has its values.
std::vector<Setting> bound_settings(const SharedSettings& from, TrainConfig& into) {
  static_cast<SharedSettings&>(into) = from;
  return settings_of(into);
}

SharedSettings settings_from_json(const json& object) {
  TrainConfig config;
  const auto settings = settings_of(config);
  set_from_json(settings, {Scope::kAll}, object);
  for (const auto& [key, value] : object.items()) {
    const auto is_key = [&name = key](const auto& known) { return known == name; };
    const auto is_shared = [&name = key](const Setting& setting) { return setting.scope == Scope::kAll && setting.name == name; };
    if (std::any_of(kResolved.begin(), kResolved.end(), is_key) || std::any_of(settings.begin(), settings.end(), is_shared)) continue;
    throw std::invalid_argument(fmt::format("the plan has {}, which this version of epipe does not know", printable(key)));
  }
  return config;
}

// The flag that sets a field: "--weight-decay" for "weight_decay", "--batch" for "client.batch".
std::string flag_of(const std::string& field) {
  if (field.starts_with("data.")) return field + " (--data)";
  if (field == "codecs") return "--codec";
  if (field == "frozen") return "--freeze";
  const std::string name = field.substr(field.rfind('.') + 1);
  TrainConfig defaults;
  for (const Setting& setting : settings_of(defaults)) {
    if (setting.name == name) return setting.turned_off ? fmt::format("{} ({})", name, setting.flag()) : setting.flag();
  }
  return Setting{name, SettingValue()}.flag();
}

// "--epochs, --max-steps, --lr"
std::string flags_that_may_change() {
  TrainConfig defaults;
  std::vector<std::string> flags;
  for (const Setting& setting : settings_of(defaults)) {
    if (setting.scope == Scope::kClientMayChange) flags.push_back(setting.flag());
  }
  return fmt::format("{}", fmt::join(flags, ", "));
}

std::string shown(const json& value) {
  if (value.is_null() || value == "") return "nothing";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Fields below a nested object are named "data.classes".
void collect(const json& object, const std::string& prefix, std::map<std::string, json>& out) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      collect(value, prefix + key + ".", out);
    } else {
      out[prefix + key] = value;
    }
  }
}

}  // namespace

json to_json(const Plan& plan) {
  json codecs = json::array();
  for (const auto& codec : plan.codecs) codecs.push_back({codec.forward, codec.backward});
  TrainConfig values;
  json all = to_json(bound_settings(plan, values), {Scope::kAll});
  all.update({{"data", data_to_json(plan.data)},
              {"seed", plan.seed},
              {"cuts", plan.cuts},
              {"codecs", std::move(codecs)},
              {"loss_scaling", plan.loss_scaling},
              {"frozen", plan.frozen},
              {"first_trained", plan.first_trained}});
  if (plan.delay > 0) all["delay"] = plan.delay;
  if (plan.in_flight > 0) all["in_flight"] = plan.in_flight;
  if (!plan.costs.forward.empty()) all["schedule_costs"] = costs_text(plan.costs);
  return all;
}

json checkpoint_fingerprint(const Plan& plan) {
  json all = to_json(plan);
  all["format"] = kCheckpointFormat;
  if (plan.client.empty()) return all;
  all["client"] = plan.client;
  all.erase("seed");  // the client's own says it all
  return all;
}

std::uint64_t worker_seed(std::uint64_t client_seed) { return layer::key_of(client_seed, "workers"); }

Plan plan_from_json(const json& object) {
  if (!object.is_object()) throw std::invalid_argument("the plan is no object");
  Plan plan;
  static_cast<SharedSettings&>(plan) = settings_from_json(object);
  plan.data = data_from_json(get<json>(object, "data"));
  plan.seed = get<std::uint64_t>(object, "seed");
  plan.cuts = get_list<std::size_t>(object, "cuts");
  if (plan.place.size() != plan.cuts.size() + 1) refuse("place", "does not match its cuts");
  if (const auto good = schedule::check({plan.place}); !good) throw std::invalid_argument(good.error().message);
  for (const auto& pair : get_list<std::vector<std::string>>(object, "codecs")) {
    if (pair.size() != 2) refuse("codecs", "are not pairs");
    if (std::max(pair[0].size(), pair[1].size()) > kMaxTextBytes) refuse("codecs", fmt::format("are longer than {} bytes", kMaxTextBytes));
    plan.codecs.push_back({pair[0], pair[1]});
  }
  if (plan.codecs.size() != plan.cuts.size()) refuse("codecs", "do not match its cuts");
  plan.loss_scaling = get<bool>(object, "loss_scaling");
  plan.frozen = get_list<std::size_t>(object, "frozen");
  plan.first_trained = get<std::size_t>(object, "first_trained");
  if (object.contains("delay")) plan.delay = static_cast<int>(get_within(object, "delay", 0, 1));
  if (object.contains("in_flight")) plan.in_flight = static_cast<int>(get_within(object, "in_flight", 0, schedule::kMaxChunks));
  if (object.contains("schedule_costs")) {
    plan.costs = parse_costs(get<std::string>(object, "schedule_costs"), static_cast<int>(plan.place.size()));
  }
  return plan;
}

void require_same_run(const Plan& plan, const std::string& fingerprint) {
  const auto parsed = parse_bounded_json(fingerprint);
  if (!parsed || !parsed.value().is_object()) throw std::invalid_argument("cannot resume, the checkpoint does not say of which run it is");
  const json& there = parsed.value();
  if (there.value("format", json()) != kCheckpointFormat) {
    throw std::invalid_argument("cannot resume, the checkpoint is of an earlier version of epipe; continue with that one, or begin anew");
  }
  const std::string different = differences(checkpoint_fingerprint(plan), there);
  if (different.empty()) return;
  throw std::invalid_argument(fmt::format(
      "cannot resume, the checkpoint is of another run: {}; leave these flags out for the run's own values, or begin anew in another "
      "--run-dir; a resumed run may change {}",
      different, flags_that_may_change()));
}

std::string differences(const json& here, const json& there) {
  std::map<std::string, json> left;
  std::map<std::string, json> right;
  collect(here, "", left);
  collect(there, "", right);
  std::set<std::string> keys;
  for (const auto& [key, value] : left) keys.insert(key);
  for (const auto& [key, value] : right) keys.insert(key);
  std::vector<std::string> found;
  for (const auto& key : keys) {
    if (left[key] == right[key]) continue;
    found.push_back(fmt::format("{}: {} here, {} there", flag_of(key), shown(left[key]), shown(right[key])));
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

int stage_of_layer(const Plan& plan, std::size_t layer) {
  return static_cast<int>(std::upper_bound(plan.cuts.begin(), plan.cuts.end(), layer) - plan.cuts.begin());
}

pipeline::PipelineConfig pipeline_config(const Plan& plan) {
  pipeline::PipelineConfig p;
  p.cuts = plan.cuts;
  p.placement = {plan.place};
  p.schedule = plan.schedule;
  p.chunks = plan.chunks;
  p.in_flight = plan.in_flight;
  p.delay = plan.delay;
  p.costs = plan.costs;
  p.threads = plan.threads;
  p.codecs = plan.codecs;
  p.recompute = plan.recompute;
  p.precision = layer::parse_precision(plan.precision);
  p.loss_scaling = plan.loss_scaling;
  // The first layer's stage may be empty here, where somebody else computes what comes before.
  p.first_trained = plan.first_trained == 0 ? 0 : stage_of_layer(plan, plan.first_trained);
  p.reuse.on = plan.reuse_activations;
  p.seed = plan.seed;
  return p;
}

}  // namespace epipe::train
