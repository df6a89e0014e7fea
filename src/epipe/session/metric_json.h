#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "epipe/base/metric.h"

// Structs of metrics (base/metric.h) as JSON objects, by name.
namespace epipe::session {

// For the message to the client.
template <typename Metrics>
nlohmann::json metrics_to_json(const Metrics& metrics) {
  nlohmann::json object = nlohmann::json::object();
  Metrics::each([&](const Metric& metric, const auto& value) { object[std::string(metric.name)] = value; }, metrics);
  return object;
}

// Throws nlohmann::json::exception where one is missing or of another type.
template <typename Metrics>
Metrics metrics_from_json(const nlohmann::json& object) {
  Metrics metrics;
  Metrics::each([&](const Metric& metric, auto& value) { object.at(std::string(metric.name)).get_to(value); }, metrics);
  return metrics;
}

// For a line of metrics.jsonl: with what follows from the others, and without empty texts.
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
