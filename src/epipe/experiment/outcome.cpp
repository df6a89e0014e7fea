#include "epipe/experiment/outcome.h"

#include <nlohmann/json.hpp>

#include "epipe/base/metric.h"

namespace epipe::experiment {
namespace {

using nlohmann::json;

// Sums over the steps.
struct Sums {
  double steps = 0;
  double timed_steps = 0;  // all but the first
  double samples = 0;
  double seconds = 0;
  double wire_bytes = 0;
  double values = 0;
  std::map<int, std::pair<double, double>> received;  // by cut: bytes and seconds
  std::map<std::string, double> parts;
};

void add_cut(const json& cut, Sums& sums) {
  const double bytes = cut.at("wire_bytes").get<double>();
  sums.wire_bytes += bytes;
  sums.values += cut.at("values").get<double>();
  const double rate = cut.value("recv_MBps", 0.0);
  if (!(rate > 0)) return;
  auto& [received, seconds] = sums.received[cut.at("cut").get<int>()];
  received += bytes;
  seconds += bytes / 1e6 / rate;
}

void add_step(const json& step, Sums& sums) {
  for (const json& cut : step.at("cuts")) add_cut(cut, sums);
  for (const json& worker : step.at("workers")) {
    for (const Metric& metric : kWorkerMetrics) {
      const std::string part(metric.name);
      if (metric.unit == MetricUnit::kSeconds) sums.parts[part] += worker.value(part, 0.0);
    }
  }
  if (sums.steps == 1) sums.timed_steps = sums.samples = sums.seconds = 0;  // the first step warms up
  sums.steps += 1;
  sums.timed_steps += 1;
  sums.samples += step.at("samples").get<double>();
  sums.seconds += step.at("seconds").get<double>();
}

Outcome outcome_of(const Sums& sums) {
  Outcome out;
  out.steps = sums.steps;
  if (sums.seconds > 0) out.samples_per_s = sums.samples / sums.seconds;
  if (sums.timed_steps > 0) out.seconds_per_batch = sums.seconds / sums.timed_steps;
  if (sums.values > 0) out.bits_per_value = 8 * sums.wire_bytes / sums.values;
  if (sums.steps > 0) out.wire_bytes_per_step = sums.wire_bytes / sums.steps;
  for (const auto& [cut, received] : sums.received) out.bandwidth_MBps.push_back(received.first / 1e6 / received.second);
  for (const auto& [part, seconds] : sums.parts) out.parts[part] = seconds / sums.steps;
  return out;
}

// Calls work(line) for every line that is a JSON object, which skips a line truncated by a crash.
template <typename Work>
void for_lines(std::string_view text, const Work& work) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const json line = json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.is_object()) work(line);
  }
}

}  // namespace

Result<Outcome> outcome_of_metrics(std::string_view text) {
  Sums sums;
  json epoch;
  try {
    for_lines(text, [&](const json& line) {
      const std::string kind = line.value("kind", "");
      if (kind == "step") add_step(line, sums);
      if (kind == "epoch") epoch = line;
    });
    if (sums.steps == 0) return bad_file("metrics.jsonl has no step");
    Outcome out = outcome_of(sums);
    if (epoch.is_object()) {
      out.metric = epoch.value("metric", "accuracy");
      out.value = epoch.at("val_metric").get<double>();
      out.has_value = true;
    }
    return out;
  } catch (const json::exception& error) {
    return bad_file(std::string("metrics.jsonl is damaged: ") + error.what());
  }
}

Result<Outcome> outcome_of_info(std::string_view text) {
  const json info = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!info.is_object() || !info.contains("parameters") || !info["parameters"].is_number())
    return bad_file("expected what epipe info --json prints");
  Outcome out;
  out.parameters = info["parameters"].get<double>();
  return out;
}

bool ends_with_epoch(std::string_view metrics) {
  std::string last;
  for_lines(metrics, [&](const json& line) { last = line.value("kind", ""); });
  return last == "epoch";
}

}  // namespace epipe::experiment
