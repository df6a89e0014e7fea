#pragma once

#include <cstdint>
#include <string>

#include "epipe/base/metric.h"

namespace epipe::boundary {

// What crossed one cut in one direction; base/cut_metrics.def describes each member.
struct Traffic {
#define METRIC EPIPE_METRIC_MEMBER
#define DERIVED(name, unit, help)
#include "epipe/base/cut_metrics.def"
#undef METRIC
#undef DERIVED

  double bits_per_value() const { return values == 0 ? 0 : 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(values); }
  double rel_error() const { return signal_energy > 0 ? error_energy / signal_energy : 0; }
  double recv_MBps() const { return recv_seconds > 0 ? static_cast<double>(wire_bytes) / 1e6 / recv_seconds : 0; }

  Traffic& operator+=(const Traffic& other) { return combine(*this, other); }

  template <typename Visit, typename... Structs>
  static void each(Visit&& visit, Structs&... structs) {
#define METRIC EPIPE_METRIC_VISIT
#define DERIVED(name, unit, help)
#include "epipe/base/cut_metrics.def"
#undef METRIC
#undef DERIVED
  }
  // Calls visit(metric, value) for each derived metric.
  template <typename Visit>
  void each_derived(Visit&& visit) const {
#define METRIC(name, type, unit, over, help)
#define DERIVED(name, unit, help) visit(Metric{#name, MetricUnit::unit, Over::kMean, help}, name());
#include "epipe/base/cut_metrics.def"
#undef METRIC
#undef DERIVED
  }
};

}  // namespace epipe::boundary
