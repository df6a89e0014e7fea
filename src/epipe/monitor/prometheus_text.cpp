#include <prometheus/text_serializer.h>

#include <sstream>

#include "epipe/monitor/metric_page.h"

namespace epipe::monitor {
namespace {

prometheus::ClientMetric converted(const MetricPage::Sample& sample, MetricPage::Kind kind) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
  (kind == MetricPage::Kind::kCounter ? metric.counter.value : metric.gauge.value) = sample.value;
  return metric;
}

}  // namespace

std::string MetricPage::text() const {
  std::vector<prometheus::MetricFamily> all;
  for (const Family& family : families_) {
    const auto type = family.kind == Kind::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    auto& converted_family = all.emplace_back(prometheus::MetricFamily{family.name, family.help, type, {}});
    for (const Sample& sample : family.samples) converted_family.metric.push_back(converted(sample, family.kind));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return std::move(out).str();
}

Part prometheus_part() { return {"prometheus-cpp", true, "metrics of servers and runs"}; }

}  // namespace epipe::monitor
