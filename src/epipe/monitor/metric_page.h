#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "epipe/base/build_part.h"
#include "epipe/base/metric.h"

namespace epipe::monitor {

// The library that --metrics needs.
Part prometheus_part();

using Labels = std::vector<std::pair<std::string, std::string>>;

// Current values in Prometheus's conventions: names in snake_case with their base unit, "_total" at the end of counters.
class MetricPage {
 public:
  enum class Kind : std::uint8_t { kCounter, kGauge };
  struct Sample {
    Labels labels;
    double value = 0;
  };
  struct Family {
    std::string name;
    std::string help;
    Kind kind = Kind::kGauge;
    std::vector<Sample> samples;
  };

  void counter(std::string_view name, std::string_view help, double value, Labels labels = {});
  void gauge(std::string_view name, std::string_view help, double value, Labels labels = {});
  // One declared metric (base/metric.h): a counter if steps are summed, otherwise a gauge; in bytes where it has bits.
  void declared(std::string_view prefix, const Metric& metric, double value, Labels labels);
  // Every number in a struct of metrics, under its declared name.
  template <typename Metrics>
  void declared(std::string_view prefix, const Metrics& metrics, const Labels& labels) {
    const auto add = [&](const Metric& metric, const auto& value) {
      if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
        declared(prefix, metric, static_cast<double>(value), labels);
    };
    Metrics::each(add, metrics);
  }

  const std::vector<Family>& families() const { return families_; }
  // The text of /metrics. Throws std::runtime_error in a build without prometheus-cpp.
  std::string text() const;

 private:
  void add(Kind kind, std::string_view name, std::string_view help, double value, Labels labels);

  std::vector<Family> families_;
};

// "epipe_worker_" and forward, in seconds, summed: "epipe_worker_forward_seconds_total".
std::string exported_name(std::string_view prefix, const Metric& metric);

// Metrics of every process: epipe_build_info with these labels, and memory, time and files under Prometheus's standard names.
void add_process(MetricPage& page, const Labels& build);

}  // namespace epipe::monitor
