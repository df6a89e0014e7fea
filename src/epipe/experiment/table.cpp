#include "epipe/experiment/table.h"

#include <algorithm>
#include <cmath>

namespace epipe::experiment {
namespace {

// Averages known values.
class Mean {
 public:
  void add(double value) {
    if (value < 0) return;
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? -1 : sum_ / count_; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

template <typename Field>
double mean_of(const std::vector<const RunResult*>& runs, const Field& field) {
  Mean mean;
  for (const RunResult* run : runs) mean.add(field(run->outcome));
  return mean.value();
}

// Mean and sample deviation of the metric; the deviation is unknown for fewer than two values.
void add_metric(const std::vector<const RunResult*>& runs, Row& row) {
  const bool error = !row.entry.published_value("error").empty();
  std::vector<double> values;
  for (const RunResult* run : runs) {
    if (run->outcome.has_value) values.push_back(error ? 100 - 100 * run->outcome.value : 100 * run->outcome.value);
  }
  if (values.empty()) return;
  row.metric = error ? "top-1 error" : runs[0]->outcome.metric;
  row.has_mean = true;
  row.mean = 0;
  for (const double value : values) row.mean += value / static_cast<double>(values.size());
  if (values.size() < 2) return;
  double squares = 0;
  for (const double value : values) squares += (value - row.mean) * (value - row.mean);
  row.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
}

void add_ways(const std::vector<const RunResult*>& runs, Row& row) {
  const auto count = static_cast<double>(runs.size());
  for (const RunResult* run : runs) {
    row.bandwidth_MBps.resize(std::max(row.bandwidth_MBps.size(), run->outcome.bandwidth_MBps.size()));
    for (std::size_t j = 0; j < run->outcome.bandwidth_MBps.size(); ++j) row.bandwidth_MBps[j] += run->outcome.bandwidth_MBps[j] / count;
    for (const auto& [part, seconds] : run->outcome.parts) row.parts[part] += seconds / count;
  }
}

Row row_of(const Entry& entry, const std::vector<const RunResult*>& runs) {
  Row row;
  row.entry = entry;
  row.settings = runs[0]->settings;
  row.data = runs[0]->data;
  row.seeds = static_cast<int>(runs.size());
  row.steps = mean_of(runs, [](const Outcome& o) { return o.steps; });
  row.bits_per_value = mean_of(runs, [](const Outcome& o) { return o.bits_per_value; });
  row.wire_bytes_per_step = mean_of(runs, [](const Outcome& o) { return o.wire_bytes_per_step; });
  row.samples_per_s = mean_of(runs, [](const Outcome& o) { return o.samples_per_s; });
  row.seconds_per_batch = mean_of(runs, [](const Outcome& o) { return o.seconds_per_batch; });
  row.parameters = mean_of(runs, [](const Outcome& o) { return o.parameters; });
  add_metric(runs, row);
  add_ways(runs, row);
  return row;
}

// The finished runs by entry and command, in the order in which they were first run; a seed that was run twice counts once.
using Groups = std::vector<std::pair<std::string, std::vector<const RunResult*>>>;

Groups groups_of(const std::vector<RunResult>& results) {
  Groups groups;
  for (const RunResult& result : results) {
    if (!result.failed.empty()) continue;
    const std::string key = result.id + '\n' + result.command;
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    std::erase_if(found->second, [&](const RunResult* run) { return run->seed == result.seed; });
    found->second.push_back(&result);
  }
  return groups;
}

// The settings that entries with different numbers of workers share: all but the devices.
std::string without_devices(const std::string& settings) {
  const std::size_t from = settings.find(", on ");
  if (from == std::string::npos) return settings;
  std::size_t to = settings.find(", ", from + 1);
  const std::string devices = settings.substr(from + 5, to == std::string::npos ? to : to - from - 5);
  const std::string kind = devices.substr(0, devices.find_first_of(":,"));
  return settings.substr(0, from) + ", " + kind + (to == std::string::npos ? "" : settings.substr(to));
}

void add_speedups(std::vector<Row>& rows) {
  for (Row& row : rows) {
    if (row.entry.baseline.empty() || !(row.samples_per_s > 0)) continue;
    for (const Row& base : rows) {
      const bool same = base.entry.id == row.entry.baseline && without_devices(base.settings) == without_devices(row.settings);
      if (same && base.samples_per_s > 0) row.speedup = row.samples_per_s / base.samples_per_s;
    }
  }
}

std::string why_not(const Entry& entry, const std::vector<RunResult>& results, const Settings& settings, const Machine& machine) {
  for (auto result = results.rbegin(); result != results.rend(); ++result) {
    if (result->id == entry.same_as && !result->failed.empty()) return "failed: " + result->failed;
  }
  const auto call = call_of(entry, settings, machine);
  if (const auto* const not_run = std::get_if<NotRun>(&call)) return not_run->reason;
  return "not asked for";
}

}  // namespace

std::vector<Row> make_rows(const std::vector<Entry>& entries, const std::vector<RunResult>& results, const Settings& settings,
                           const Machine& machine) {
  const Groups groups = groups_of(results);
  std::vector<Row> rows;
  for (const Entry& entry : entries) {
    const std::size_t before = rows.size();
    for (const auto& [key, runs] : groups) {
      if (runs[0]->id == entry.same_as) rows.push_back(row_of(entry, runs));
    }
    if (rows.size() > before) continue;
    Row row;
    row.entry = entry;
    row.not_run = why_not(entry, results, settings, machine);
    rows.push_back(std::move(row));
  }
  add_speedups(rows);
  return rows;
}

}  // namespace epipe::experiment
