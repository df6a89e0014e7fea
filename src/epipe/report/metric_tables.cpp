#include "epipe/report/metric_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "epipe/base/metric.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

// One metric of one worker or cut over the steps of a run.
class OverSteps {
 public:
  explicit OverSteps(Over over = Over::kMean) : over_(over) {}

  void add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    largest_ = std::fmax(largest_, value);
    last_ = value;
    ++count_;
  }
  // Summed metrics are shown per step.
  double result() const {
    if (over_ == Over::kMax) return largest_;
    if (over_ == Over::kLast) return last_;
    return count_ == 0 ? kUnknown : sum_ / static_cast<double>(count_);
  }

 private:
  Over over_;
  double sum_ = 0;
  double largest_ = kUnknown;
  double last_ = kUnknown;
  std::size_t count_ = 0;
};

std::string shown(MetricUnit unit, double value) {
  if (unit == MetricUnit::kSeconds) return seconds_text(value);
  if (unit == MetricUnit::kBytes) return bytes_text(value);
  return number_text(value);
}

// Declared metrics in their order, then the others in the order found.
std::vector<Metric> rows_of(std::span<const Metric> declared, const std::vector<std::string>& names) {
  std::vector<Metric> rows;
  for (const Metric& metric : declared) {
    if (std::find(names.begin(), names.end(), metric.name) != names.end()) rows.push_back(metric);
  }
  const auto is_known = [&](const std::string& name) {
    return std::any_of(declared.begin(), declared.end(), [&](const Metric& metric) { return metric.name == name; });
  };
  for (const std::string& name : names) {
    if (!is_known(name)) rows.push_back({name});
  }
  return rows;
}

// A worker, or a cut and direction.
struct Column {
  std::string heading;
  std::vector<OverSteps> rows;
};
using Columns = std::map<std::pair<int, Direction>, Column>;

Column make_column(std::string heading, const std::vector<Metric>& rows) {
  Column column{std::move(heading), {}};
  for (const Metric& metric : rows) column.rows.emplace_back(metric.over);
  return column;
}

void add_values(const std::vector<double>& values, const std::vector<std::size_t>& row_of, Column& column) {
  for (std::size_t k = 0; k < values.size(); ++k) column.rows[row_of[k]].add(values[k]);
}

// The row of each name.
std::vector<std::size_t> rows_by_name(const std::vector<Metric>& rows, const std::vector<std::string>& names) {
  std::vector<std::size_t> row_of;
  for (const std::string& name : names) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Metric& metric) { return metric.name == name; });
    row_of.push_back(static_cast<std::size_t>(found - rows.begin()));
  }
  return row_of;
}

std::string table(const std::string& title, const std::vector<Metric>& rows, const Columns& columns) {
  if (columns.empty() || rows.empty()) return "";
  std::string head = R"(<th scope="col">mean of a step</th>)";
  for (const auto& [at, column] : columns) head += fmt::format(R"(<th scope="col">{}</th>)", escape(column.heading));
  std::string body;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Metric& metric = rows[row];
    const std::string most = metric.over == Over::kMax ? " (most)" : "";
    body += fmt::format(R"(<tr><th scope="row" title="{}">{}{}</th>)", escape(metric.help), escape(metric.name), most);
    for (const auto& [at, column] : columns) body += fmt::format("<td>{}</td>", shown(metric.unit, column.rows[row].result()));
    body += "</tr>\n";
  }
  return fmt::format(
      "<details><summary>{}</summary>\n<div class=\"scroll\"><table class=\"metrics\">\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n"
      "</table></div>\n</details>\n",
      escape(title), head, body);
}

std::string workers_table(const RunData& run) {
  const auto rows = rows_of(kWorkerMetrics, run.worker_metrics);
  const auto row_of = rows_by_name(rows, run.worker_metrics);
  Columns columns;
  for (const Step& step : run.steps) {
    for (const WorkerStep& worker : step.workers) {
      auto& column = columns.try_emplace({worker.worker, {}}, make_column(fmt::format("worker {}", worker.worker), rows)).first->second;
      add_values(worker.values_of, row_of, column);
    }
  }
  return table(fmt::format("workers of {}", run.name), rows, columns);
}

std::string cuts_table(const RunData& run) {
  const auto rows = rows_of(kCutMetrics, run.cut_metrics);
  const auto row_of = rows_by_name(rows, run.cut_metrics);
  Columns columns;
  for (const Step& step : run.steps) {
    for (const CutStep& cut : step.cuts) {
      auto& column =
          columns.try_emplace({cut.cut, cut.direction}, make_column(fmt::format("cut {} {}", cut.cut, name(cut.direction)), rows))
              .first->second;
      add_values(cut.values_of, row_of, column);
    }
  }
  return table(fmt::format("cuts of {}", run.name), rows, columns);
}

}  // namespace

std::string metric_tables(const RunData& run) { return workers_table(run) + cuts_table(run); }

}  // namespace epipe::report
