// A line of worker_metrics.def or cut_metrics.def is all that a metric takes: message, metrics.jsonl and report.
#include <gtest/gtest.h>

#include "epipe/report/metric_tables.h"
#include "epipe/report/metrics.h"
#include "epipe/session/metric_json.h"
#include "epipe/session/step_result.h"
#include "epipe/train/metrics.h"

namespace epipe::train {
namespace {

// What a worker measures, and one thing more.
struct ExtendedTimes {
#define METRIC EPIPE_METRIC_MEMBER
#include "train/one_more_metric.def"
#undef METRIC
  template <typename Visit, typename... Structs>
  static void each(Visit&& visit, Structs&... structs) {
#define METRIC EPIPE_METRIC_VISIT
#include "train/one_more_metric.def"
#undef METRIC
  }
};

// The report's tables of one step.
std::string tables_of(const nlohmann::json& workers, const nlohmann::json& cuts) {
  const nlohmann::json line = {{"kind", "step"}, {"epoch", 0}, {"step", 0}, {"workers", workers}, {"cuts", cuts}};
  auto metrics = report::parse_metrics(line.dump() + "\n", "metrics.jsonl");
  if (!metrics) throw std::runtime_error(metrics.error().text());
  report::RunData run;
  run.name = "a";
  run.steps = std::move(metrics.value().steps);
  run.worker_metrics = std::move(metrics.value().worker_metrics);
  run.cut_metrics = std::move(metrics.value().cut_metrics);
  return report::metric_tables(run);
}

TEST(OneMoreMetric, TravelsAndIsCombined) {
  ExtendedTimes times;
  times.sparkle = 0.5;
  times.forward = 1;
  auto received = session::metrics_from_json<ExtendedTimes>(session::metrics_to_json(times));
  EXPECT_EQ(received.sparkle, 0.5);
  times.sparkle = 0.25;
  combine(received, times);
  EXPECT_EQ(received.sparkle, 0.5) << "the most of both";
  EXPECT_EQ(received.forward, 2) << "the sum";
  nlohmann::json without = session::metrics_to_json(times);
  without.erase("sparkle");
  EXPECT_THROW(session::metrics_from_json<ExtendedTimes>(without), nlohmann::json::exception);
}

TEST(OneMoreMetric, IsInTheLineAndInTheReport) {
  ExtendedTimes times;
  times.sparkle = 0.5;
  nlohmann::json line = session::metrics_line(times);
  EXPECT_EQ(line.at("sparkle"), 0.5);
  line["worker"] = 0;
  const std::string tables = tables_of(nlohmann::json::array({line}), nlohmann::json::array());
  EXPECT_NE(tables.find(">sparkle</th><td>0.5</td>"), std::string::npos) << tables;
}

// Every metric has another value.
template <typename Metrics>
Metrics numbered(double first) {
  Metrics metrics;
  const auto set = [&](const Metric&, auto& value) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, std::string>) {
      value = "some";
    } else {
      value = static_cast<std::remove_reference_t<decltype(value)>>(first++);
    }
  };
  Metrics::each(set, metrics);
  return metrics;
}

pipeline::StepResult numbered_step() {
  pipeline::StepResult result = session::no_result(1, 2);
  result.forward[0] = numbered<boundary::Traffic>(1);
  result.backward[0] = numbered<boundary::Traffic>(100);
  for (std::size_t w = 0; w < 2; ++w) result.workers[w] = numbered<pipeline::WorkerTimes>(200 + 100 * static_cast<double>(w));
  return result;
}

TEST(DeclaredMetrics, AllTravel) {
  const pipeline::StepResult sent = numbered_step();
  const pipeline::StepResult received = session::step_result_from_json(nlohmann::json::parse(session::to_json(sent).dump()));
  EXPECT_EQ(session::metrics_to_json(received.forward[0]), session::metrics_to_json(sent.forward[0]));
  EXPECT_EQ(session::metrics_to_json(received.backward[0]), session::metrics_to_json(sent.backward[0]));
  EXPECT_EQ(session::metrics_to_json(received.workers[1]), session::metrics_to_json(sent.workers[1]));
  EXPECT_EQ(session::metrics_to_json(sent.workers[1]).size(), kWorkerMetrics.size());
}

TEST(DeclaredMetrics, AllAreWrittenAndShown) {
  const nlohmann::json workers = workers_json(numbered_step(), 0, 1);
  const nlohmann::json cuts = cuts_json(numbered_step(), {{"none", "none"}}, true);
  const std::string tables = tables_of(workers, cuts);
  for (const Metric& metric : kWorkerMetrics) {
    EXPECT_TRUE(workers[1].contains(std::string(metric.name))) << metric.name;
    EXPECT_NE(tables.find(fmt::format(">{}", metric.name)), std::string::npos) << metric.name;
  }
  for (const Metric& metric : kCutMetrics) {
    EXPECT_TRUE(cuts[1].contains(std::string(metric.name))) << metric.name;
    const bool is_text = metric.unit == MetricUnit::kText;
    const std::string row = fmt::format(">{}{}</th>", metric.name, metric.over == Over::kMax ? " (most)" : "");
    EXPECT_EQ(tables.find(row) == std::string::npos, is_text) << metric.name;
  }
}

}  // namespace
}  // namespace epipe::train
