#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "epipe/base/json_type.h"
#include "epipe/base/metric.h"
#include "epipe/base/printable.h"

// Structs of metrics (base/metric.h) as JSON objects, by name.
namespace epipe::session {

// For messages to the client.
template <typename Metrics>
nlohmann::json metrics_to_json(const Metrics& metrics) {
  nlohmann::json object = nlohmann::json::object();
  Metrics::each([&](const Metric& metric, const auto& value) { object[std::string(metric.name)] = value; }, metrics);
  return object;
}

inline constexpr std::size_t kMaxMetricText = 64;

// Reads a metric from another process: numbers in their type's range, texts made printable and short. Throws std::invalid_argument.
template <typename T>
void take_metric(const nlohmann::json& json, const Metric& metric, T& value) {
  if (!holds<T>(json)) throw std::invalid_argument("the metric " + std::string(metric.name) + " is of another type");
  json.get_to(value);
  if constexpr (std::is_same_v<T, std::string>) value = printable(value.substr(0, kMaxMetricText));
}

// Throws nlohmann::json::exception or std::invalid_argument if one is missing or of another type.
template <typename Metrics>
Metrics metrics_from_json(const nlohmann::json& object) {
  Metrics metrics;
  Metrics::each([&](const Metric& metric, auto& value) { take_metric(object.at(std::string(metric.name)), metric, value); }, metrics);
  return metrics;
}

// The same for lists of them.
template <typename Metrics>
nlohmann::json list_to_json(const std::vector<Metrics>& all) {
  nlohmann::json list = nlohmann::json::array();
  for (const Metrics& metrics : all) list.push_back(metrics_to_json(metrics));
  return list;
}
template <typename Metrics>
std::vector<Metrics> list_from_json(const nlohmann::json& list) {
  std::vector<Metrics> all;
  for (const auto& metrics : list) all.push_back(metrics_from_json<Metrics>(metrics));
  return all;
}

// For a line of metrics.jsonl: includes derived metrics, omits empty texts.
template <typename Metrics>
nlohmann::json metrics_line(const Metrics& metrics) {
  nlohmann::json object = metrics_to_json(metrics);
  for (auto field = object.begin(); field != object.end();) field = *field == "" ? object.erase(field) : std::next(field);
  if constexpr (requires { metrics.each_derived([](const Metric&, double) {}); }) {
    metrics.each_derived([&](const Metric& metric, double value) { object[std::string(metric.name)] = value; });
  }
  return object;
}

}  // namespace epipe::session
