#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace epipe {

enum class MetricUnit : std::uint8_t { kNumber, kCount, kSeconds, kBytes, kText };

// How the values of several steps, processes or replicas are combined.
enum class Over : std::uint8_t { kSum, kMax, kLast, kMean };  // kMean: for derived metrics, recomputed from their parts

// What a line of worker_metrics.def or cut_metrics.def declares.
struct Metric {
  std::string_view name;
  MetricUnit unit = MetricUnit::kNumber;
  Over over = Over::kMean;
  std::string_view help{};
};

// Adds another measurement.
template <typename T>
void combine(const Metric& metric, T& into, const T& other) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!other.empty()) into = other;
  } else if (metric.over == Over::kMax) {
    into = std::max(into, other);
  } else if (metric.over == Over::kSum) {
    into += other;
  } else {
    into = other;
  }
}

// The same for a struct of metrics, whose each(visit, structs...) calls visit(metric, member of each struct...).
template <typename Metrics>
Metrics& combine(Metrics& into, const Metrics& other) {
  Metrics::each([](const Metric& metric, auto& sum, const auto& value) { combine(metric, sum, value); }, into, other);
  return into;
}

// What stays of somebody who has ended: sums; a depth or a peak was of that moment.
template <typename Metrics>
void keep_sums(Metrics& metrics) {
  const auto clear = [](const Metric& metric, auto& value) {
    if (metric.over != Over::kSum) value = std::remove_reference_t<decltype(value)>{};
  };
  Metrics::each(clear, metrics);
}

// In a struct of metrics: its members, and the body of each().
#define EPIPE_METRIC_MEMBER(name, type, unit, over, help)                                                     \
  static_assert(Over::over != Over::kMean, "means do not add up: measure what they are made of, and derive"); \
  type name{};
#define EPIPE_METRIC_VISIT(name, type, unit, over, help) visit(Metric{#name, MetricUnit::unit, Over::over, help}, structs.name...);

#define METRIC(name, type, unit, over, help) Metric{#name, MetricUnit::unit, Over::over, help},
#define DERIVED(name, unit, help) Metric{#name, MetricUnit::unit, Over::kMean, help},
inline constexpr auto kWorkerMetrics = std::to_array<Metric>({
#include "epipe/base/worker_metrics.def"
});
inline constexpr auto kCutMetrics = std::to_array<Metric>({
#include "epipe/base/cut_metrics.def"
});
#undef METRIC
#undef DERIVED

}  // namespace epipe
