#include "epipe/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "epipe/report/bar_chart.h"
#include "epipe/report/curves.h"
#include "epipe/report/inspection.h"
#include "epipe/report/summary.h"
#include "epipe/report/text.h"
#include "epipe/report/timeline.h"

namespace epipe::report {
namespace {

constexpr std::size_t kSpansOfAllRuns = 5000;  // keeps the page small
constexpr std::size_t kFewestSpans = 200;
constexpr std::size_t kLongestLabel = 18;

template <typename Map>
void insert_keys(const Map& map, std::set<typename Map::key_type>& keys) {
  for (const auto& [key, value] : map) keys.insert(key);
}

Bar bytes_bar(const RunData& run, std::size_t index, bool alone, int cut, const CutSummary& summary, const Unit& unit) {
  std::string label = bytes_text(summary.bytes_per_step);
  if (std::isfinite(summary.bits_per_value)) label += fmt::format(", {:.3g} bits/value", summary.bits_per_value);
  const std::string title = fmt::format("{}, {}: {}", run.name, summary.codec, label);
  const std::size_t shade = alone ? static_cast<std::size_t>(cut) : index;
  return {{{summary.bytes_per_step / unit.size, colour(shade), title}}, label, run_class(index)};
}

Figure bytes_chart(const std::vector<RunData>& runs) {
  std::vector<std::map<std::pair<int, Direction>, CutSummary>> all;
  std::set<std::pair<int, Direction>> places;
  double most = 0;
  for (const RunData& run : runs) {
    insert_keys(all.emplace_back(summarize_cuts(run)), places);
    for (const auto& [at, cut] : all.back()) most = std::fmax(most, cut.bytes_per_step);
  }
  const Unit unit = bytes_unit(most);
  BarChart chart;
  for (const auto& [cut, direction] : places) {
    BarGroup group{fmt::format("cut {} {}", cut, name(direction)), {}};
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const auto found = all[r].find({cut, direction});
      if (found == all[r].end() || !std::isfinite(found->second.bytes_per_step)) continue;
      group.bars.push_back(bytes_bar(runs[r], r, runs.size() == 1, cut, found->second, unit));
    }
    if (!group.bars.empty()) chart.groups.push_back(std::move(group));
  }
  chart.figure = {"chart-bytes", "Bytes per step", "Mean over the steps, counted on the wire.", run_keys(runs, "swatch"), "", false};
  std::set<int> cuts;
  for (const auto& [cut, direction] : places) cuts.insert(cut);
  for (const int cut : cuts) {
    if (runs.size() == 1) chart.figure.keys.push_back({fmt::format("cut {}", cut), "swatch " + colour(static_cast<std::size_t>(cut)), ""});
  }
  chart.x_label = fmt::format("bytes per step ({})", unit.name);
  return draw(std::move(chart));
}

std::vector<Key> activity_keys(const std::set<std::size_t>& used) {
  std::vector<Key> keys;
  keys.reserve(used.size());
  for (const std::size_t a : used) keys.push_back({std::string(kActivities[a]), fmt::format("swatch a-{}", kActivities[a]), ""});
  return keys;
}

Bar time_bar(const RunData& run, std::size_t index, bool alone, const WorkerSummary& worker, const Unit& unit) {
  Bar bar;
  double sum = 0;
  for (std::size_t a = 0; a < kActivities.size(); ++a) {
    const double seconds = worker.seconds_per_step[a];
    if (!(seconds > 0)) continue;
    sum += seconds;
    bar.segments.push_back({seconds / unit.size, fmt::format("a-{}", kActivities[a]),
                            fmt::format("{}, {}: {}", run.name, kActivities[a], seconds_text(seconds))});
  }
  bar.label = seconds_text(sum);
  if (std::isfinite(worker.peak_memory_bytes)) bar.label += fmt::format(", peak {}", bytes_text(worker.peak_memory_bytes));
  if (!alone) bar.label = fmt::format("{}: {}", shorten(run.name, kLongestLabel), seconds_text(sum));
  bar.css = run_class(index);
  return bar;
}

double sum_of(const WorkerSummary& worker) {
  double sum = 0;
  for (const double seconds : worker.seconds_per_step) sum += seconds;
  return sum;
}

Figure time_chart(const std::vector<RunData>& runs) {
  std::vector<std::map<int, WorkerSummary>> all;
  std::set<int> workers;
  std::set<std::size_t> used;
  double most = 0;
  for (const RunData& run : runs) {
    insert_keys(all.emplace_back(summarize_workers(run)), workers);
    for (const auto& [id, worker] : all.back()) {
      most = std::max(most, sum_of(worker));
      for (std::size_t a = 0; a < kActivities.size(); ++a) {
        if (worker.seconds_per_step[a] > 0) used.insert(a);
      }
    }
  }
  const Unit unit = seconds_unit(most);
  BarChart chart;
  for (const int id : workers) {
    BarGroup group{fmt::format("worker {}", id), {}};
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (const auto found = all[r].find(id); found != all[r].end()) {
        group.bars.push_back(time_bar(runs[r], r, runs.size() == 1, found->second, unit));
      }
    }
    chart.groups.push_back(std::move(group));
  }
  chart.figure = {"chart-time",
                  "Time per worker",
                  "Mean over the steps. Encoding and decoding run beside the computation, so a bar may exceed the step.",
                  activity_keys(used),
                  "",
                  false};
  chart.x_label = fmt::format("time per step ({})", unit.name);
  return draw(std::move(chart));
}

// All runs on one scale: the shorter picture is the faster run.
void add_timelines(const std::vector<RunData>& runs, std::vector<Figure>& figures) {
  const std::size_t most = std::max(kSpansOfAllRuns / runs.size(), kFewestSpans);
  std::vector<Window> windows;
  std::set<std::size_t> used;
  double longest = 0;
  for (const RunData& run : runs) {
    longest = std::max(longest, windows.emplace_back(choose_window(run.trace, most)).length());
    for (const Span& span : run.trace.spans) used.insert(span.activity);
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::string title = runs.size() == 1 ? "Timeline" : fmt::format("Timeline: {}", runs[r].name);
    Figure figure{fmt::format("chart-timeline-{}", r), title, "A few steps from the middle of the trace.", activity_keys(used), "", true};
    figures.push_back(draw_timeline(std::move(figure), runs[r].trace, windows[r], longest));
  }
}

}  // namespace

std::vector<Figure> charts(const std::vector<RunData>& runs) {
  std::vector<Figure> figures = {train_loss_chart(runs), val_loss_chart(runs), train_accuracy_chart(runs), val_accuracy_chart(runs),
                                 bytes_chart(runs),      time_chart(runs),     error_chart(runs),          bits_chart(runs)};
  if (std::any_of(runs.begin(), runs.end(), [](const RunData& run) { return !run.audits.empty(); })) {
    figures.push_back(loss_added_chart(runs));
    figures.push_back(harm_chart(runs));
  }
  const auto followed = [](const RunData& run) { return !run.rate_changes.empty() && std::isfinite(run.rate_changes.back().up_MBps); };
  if (std::any_of(runs.begin(), runs.end(), followed)) figures.push_back(link_chart(runs));
  add_timelines(runs, figures);
  for (Figure& figure : inspection_charts(runs)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace epipe::report
