#include "epipe/train/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "epipe/data/sample_values.h"
#include "epipe/layer/random.h"

namespace epipe::train {
namespace {

using nlohmann::json;

// Far beyond any model, far below what would exhaust a machine by itself.
constexpr std::size_t kMaxStages = 1024;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::int64_t kMaxExtent = 1 << 20;
constexpr std::size_t kMaxSampleDims = 8;
constexpr std::uint64_t kMaxSampleValues = 1 << 26;

constexpr int kCheckpointFormat = 2;  // 1, without a number, had the client's seed in every process

[[noreturn]] void refuse(std::string_view field, std::string_view what) {
  throw std::invalid_argument(fmt::format("the plan's {} {}", field, what));
}

template <typename T>
T get(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) refuse(field, "is missing");
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    refuse(field, "has the wrong type");
  }
}

std::string get_text(const json& object, const char* field) {
  auto text = get<std::string>(object, field);
  if (text.size() > kMaxTextBytes) refuse(field, fmt::format("is longer than {} bytes", kMaxTextBytes));
  return text;
}

template <typename T>
std::vector<T> get_list(const json& object, const char* field) {
  auto list = get<std::vector<T>>(object, field);
  if (list.size() > kMaxStages) refuse(field, fmt::format("has more than {} entries", kMaxStages));
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
          {"regression", data.regression}};
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
  return data;
}

json update_to_json(const OptimizerConfig& update) {
  return {{"kind", to_string(update.kind)},
          {"momentum", update.momentum},
          {"nesterov", update.nesterov},
          {"weight_decay", update.weight_decay},
          {"beta1", update.beta1},
          {"beta2", update.beta2},
          {"eps", update.eps}};
}

OptimizerConfig update_from_json(const json& object) {
  OptimizerConfig update;
  update.kind = parse_optimizer(get_text(object, "kind"));
  update.momentum = get<double>(object, "momentum");
  update.nesterov = get<bool>(object, "nesterov");
  update.weight_decay = get<double>(object, "weight_decay");
  update.beta1 = get<double>(object, "beta1");
  update.beta2 = get<double>(object, "beta2");
  update.eps = get<double>(object, "eps");
  return update;
}

// The flag that sets a field: "--weight-decay" for "update.weight_decay".
std::string flag_of(const std::string& field) {
  if (field.starts_with("data.")) return field + " (--data)";
  if (field == "client.shuffle") return "shuffle (--no-shuffle)";
  if (field == "update.kind") return "--optimizer";
  if (field == "codecs") return "--codec";
  std::string name = field.substr(field.rfind('.') + 1);
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::string shown(const json& value) {
  if (value.is_null() || value == "") return "nothing";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Fields below a nested object are named "update.momentum".
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
  return {{"model", plan.model},
          {"data", data_to_json(plan.data)},
          {"seed", plan.seed},
          {"cuts", plan.cuts},
          {"place", plan.place},
          {"chunks", plan.chunks},
          {"schedule", plan.schedule},
          {"codecs", std::move(codecs)},
          {"recompute", plan.recompute},
          {"precision", to_string(plan.precision)},
          {"loss_scaling", plan.loss_scaling},
          {"threads", plan.threads},
          {"update", update_to_json(plan.update)}};
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
  Plan plan;
  plan.model = get_text(object, "model");
  plan.data = data_from_json(get<json>(object, "data"));
  plan.seed = get<std::uint64_t>(object, "seed");
  plan.cuts = get_list<std::size_t>(object, "cuts");
  plan.place = get_list<int>(object, "place");
  if (plan.place.size() != plan.cuts.size() + 1) refuse("place", "does not match its cuts");
  if (const auto good = schedule::check({plan.place}); !good) throw std::invalid_argument(good.error().message);
  plan.chunks = static_cast<int>(get_within(object, "chunks", 1, kMaxExtent));
  plan.schedule = get_text(object, "schedule");
  for (const auto& pair : get_list<std::vector<std::string>>(object, "codecs")) {
    if (pair.size() != 2) refuse("codecs", "are not pairs");
    if (std::max(pair[0].size(), pair[1].size()) > kMaxTextBytes) refuse("codecs", fmt::format("are longer than {} bytes", kMaxTextBytes));
    plan.codecs.push_back({pair[0], pair[1]});
  }
  if (plan.codecs.size() != plan.cuts.size()) refuse("codecs", "do not match its cuts");
  plan.recompute = get<bool>(object, "recompute");
  plan.precision = layer::parse_precision(get_text(object, "precision"));
  plan.loss_scaling = get<bool>(object, "loss_scaling");
  plan.threads = static_cast<int>(get_within(object, "threads", 1, 1024));
  plan.update = update_from_json(get<json>(object, "update"));
  return plan;
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

pipeline::PipelineConfig pipeline_config(const Plan& plan) {
  pipeline::PipelineConfig p;
  p.cuts = plan.cuts;
  p.placement = {plan.place};
  p.schedule = plan.schedule;
  p.chunks = plan.chunks;
  p.threads = plan.threads;
  p.codecs = plan.codecs;
  p.recompute = plan.recompute;
  p.precision = plan.precision;
  p.loss_scaling = plan.loss_scaling;
  p.seed = plan.seed;
  return p;
}

}  // namespace epipe::train
