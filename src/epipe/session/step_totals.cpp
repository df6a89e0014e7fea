#include "epipe/session/step_totals.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "epipe/base/bounded_json.h"
#include "epipe/session/metric_json.h"

namespace epipe::session {
namespace {

using boundary::Traffic;
using nlohmann::json;
using pipeline::WorkerTimes;

constexpr JsonLimits kTotalsLimits{.depth = 4, .values = 1 << 14, .allocated = 1 << 14};
constexpr double kSlackSeconds = 10;  // a young process has worked, too
constexpr double kMostSecondsPerSecond = 1e4;
constexpr double kMostCountPerSecond = 1e11;

template <typename Metrics>
void add_each(std::vector<Metrics>& into, const std::vector<Metrics>& from) {
  const std::size_t count = std::min(from.size(), StepTotals::kMostEntries);
  if (into.size() < count) into.resize(count);
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

template <typename Metrics>
std::vector<Metrics> read_list(const json& array) {
  if (!array.is_array() || array.size() > StepTotals::kMostEntries) throw std::invalid_argument("a list is missing or too long");
  return list_from_json<Metrics>(array);
}

double most_of(MetricUnit unit, double seconds) {
  switch (unit) {
    case MetricUnit::kSeconds: return kMostSecondsPerSecond * (seconds + kSlackSeconds);
    case MetricUnit::kCount:
    case MetricUnit::kBytes: return kMostCountPerSecond * (seconds + kSlackSeconds);
    default: return std::numeric_limits<double>::max();
  }
}

bool may_follow(const Metric& metric, double before, double now, double seconds) {
  return std::isfinite(now) && now >= 0 && now <= most_of(metric.unit, seconds) && (metric.over != Over::kSum || now >= before);
}

template <typename Metrics>
bool may_follow(const std::vector<Metrics>& before, const std::vector<Metrics>& now, double seconds) {
  if (now.size() < before.size()) return false;
  bool possible = true;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Metrics earlier = i < before.size() ? before[i] : Metrics{};
    const auto check = [&](const Metric& metric, const auto& was, const auto& is) {
      if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(is)>>) {
        possible = possible && may_follow(metric, static_cast<double>(was), static_cast<double>(is), seconds);
      }
    };
    Metrics::each(check, earlier, now[i]);
  }
  return possible;
}

}  // namespace

// A depth is that of the last step, not of the worst one.
void StepTotals::add(const pipeline::StepResult& result) {
  for (auto* const cuts : {&forward, &backward}) {
    for (Traffic& traffic : *cuts) keep_sums(traffic);
  }
  samples += static_cast<std::uint64_t>(result.samples);
  add_each(forward, result.forward);
  add_each(backward, result.backward);
  add_each(workers, result.workers);
}

void StepTotals::add(const StepTotals& other) {
  steps += other.steps;
  samples += other.samples;
  checkpoints += other.checkpoints;
  add_each(forward, other.forward);
  add_each(backward, other.backward);
  add_each(workers, other.workers);
}

void StepTotals::has_ended() {
  for (auto* const cuts : {&forward, &backward}) {
    for (Traffic& traffic : *cuts) keep_sums(traffic);
  }
  for (WorkerTimes& worker : workers) keep_sums(worker);
}

std::string to_text(const StepTotals& totals) {
  return json{{"steps", totals.steps},
              {"samples", totals.samples},
              {"checkpoints", totals.checkpoints},
              {"forward", list_to_json(totals.forward)},
              {"backward", list_to_json(totals.backward)},
              {"workers", list_to_json(totals.workers)}}
      .dump();
}

Result<StepTotals> step_totals_from_text(std::string_view text) {
  const auto parsed = parse_bounded_json(text, kTotalsLimits);
  if (!parsed) return parsed.error();
  try {
    const json& object = parsed.value();
    StepTotals totals;
    take_metric(object.at("steps"), {"steps"}, totals.steps);
    take_metric(object.at("samples"), {"samples"}, totals.samples);
    take_metric(object.at("checkpoints"), {"checkpoints"}, totals.checkpoints);
    totals.forward = read_list<Traffic>(object.at("forward"));
    totals.backward = read_list<Traffic>(object.at("backward"));
    totals.workers = read_list<WorkerTimes>(object.at("workers"));
    return totals;
  } catch (const std::exception& error) {
    return Error{ErrorCode::kBadMessage, error.what()};
  }
}

bool may_follow(const StepTotals& before, const StepTotals& now, double seconds) {
  const Metric count{"", MetricUnit::kCount, Over::kSum};
  const auto grows = [&](std::uint64_t was, std::uint64_t is) {
    return may_follow(count, static_cast<double>(was), static_cast<double>(is), seconds);
  };
  return grows(before.steps, now.steps) && grows(before.samples, now.samples) && grows(before.checkpoints, now.checkpoints) &&
         may_follow(before.forward, now.forward, seconds) && may_follow(before.backward, now.backward, seconds) &&
         may_follow(before.workers, now.workers, seconds);
}

}  // namespace epipe::session
