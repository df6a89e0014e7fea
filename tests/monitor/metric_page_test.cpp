#include "epipe/monitor/metric_page.h"

#include <gtest/gtest.h>

#include <regex>

namespace epipe::monitor {
namespace {

TEST(MetricPage, IsPrometheusText) {
  MetricPage page;
  page.counter("epipe_steps_total", "committed steps", 3);
  page.gauge("epipe_bytes_per_value", "wire bytes / values", 1.5, {{"cut", "0"}, {"direction", "forward"}});
  page.gauge("epipe_bytes_per_value", "wire bytes / values", 2, {{"cut", "a \"quoted\"\nname\\"}, {"direction", "backward"}});
  EXPECT_EQ(page.text(),
            "# HELP epipe_steps_total committed steps\n"
            "# TYPE epipe_steps_total counter\n"
            "epipe_steps_total 3\n"
            "# HELP epipe_bytes_per_value wire bytes / values\n"
            "# TYPE epipe_bytes_per_value gauge\n"
            "epipe_bytes_per_value{cut=\"0\",direction=\"forward\"} 1.5\n"
            "epipe_bytes_per_value{cut=\"a \\\"quoted\\\"\\nname\\\\\",direction=\"backward\"} 2\n");
}

// https://prometheus.io/docs/practices/naming: base units at the end, "_total" behind what accumulates.
TEST(DeclaredMetrics, AreNamedByTheConventions) {
  EXPECT_EQ(exported_name("epipe_worker_", kWorkerMetrics[1]), "epipe_worker_forward_seconds_total");
  EXPECT_EQ(exported_name("epipe_", kCutMetrics[0]), "epipe_wire_bytes_total");
  EXPECT_EQ(exported_name("epipe_", kCutMetrics[2]), "epipe_bytes_per_value");
  EXPECT_EQ(exported_name("epipe_", kCutMetrics[3]), "epipe_relative_error_ratio");
  MetricPage page;
  page.declared("epipe_", kCutMetrics[2], 2, {});
  EXPECT_EQ(page.families().at(0).samples.at(0).value, 0.25) << "bytes of 2 bits";
  const auto check = [](std::string_view prefix, const Metric& metric) {
    const std::string name = exported_name(prefix, metric);
    EXPECT_TRUE(std::regex_match(name, std::regex("[a-z][a-z0-9_]*")) || name == "epipe_recv_MBps") << name;
    const std::string unit = metric.unit == MetricUnit::kSeconds ? "_seconds" : metric.unit == MetricUnit::kBytes ? "_bytes" : "";
    EXPECT_TRUE(name.ends_with(metric.over == Over::kSum ? unit + "_total" : unit)) << name;
  };
  for (const Metric& metric : kWorkerMetrics) check("epipe_worker_", metric);
  for (const Metric& metric : kCutMetrics) check("epipe_", metric);
}

TEST(MetricPage, EveryProcessSaysWhatItIsAndWhatItTakes) {
  MetricPage page;
  add_process(page, {{"version", "1.2.3"}, {"cuda", "no"}});
  const std::string text = page.text();
  EXPECT_NE(text.find("epipe_build_info{version=\"1.2.3\",cuda=\"no\"} 1\n"), std::string::npos) << text;
  const auto value = [&](const std::string& name) {
    for (const auto& family : page.families()) {
      if (family.name == name) return family.samples.at(0).value;
    }
    return -1.0;
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e5);
  EXPECT_GT(value("process_open_fds"), 2);
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_NEAR(value("process_start_time_seconds"), static_cast<double>(::time(nullptr)), 600);
}

}  // namespace
}  // namespace epipe::monitor
