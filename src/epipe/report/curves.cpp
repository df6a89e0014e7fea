#include "epipe/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "epipe/report/line_chart.h"

namespace epipe::report {
namespace {

constexpr std::size_t kPointsPerChart = 9000;  // keeps the page small however many steps and runs there are
constexpr std::size_t kColours = 8;
constexpr std::size_t kWorthSmoothing = 60;
constexpr double kLargestDrawn = 1e30;

const std::vector<Key> kBothDirections = {{"forward", "stroke plain", ""}, {"backward", "stroke plain dashed", ""}};
const std::vector<Key> kBothSets = {{"validation", "stroke plain", ""}, {"training, mean of the epoch", "stroke plain dashed", ""}};

std::size_t points_per_line(std::size_t lines) {
  return std::clamp<std::size_t>(kPointsPerChart / std::max<std::size_t>(lines, 1), 24, 700);
}

void add_point(Series& series, double x, double y) {
  if (std::abs(y) < kLargestDrawn) series.push_back({x, y});
}

Series by_step(const RunData& run, double Step::*field, double factor) {
  Series series;
  for (const Step& step : run.steps) add_point(series, static_cast<double>(step.step), factor * (step.*field));
  return series;
}

Series by_epoch(const RunData& run, double Epoch::*field, double factor) {
  Series series;
  for (const Epoch& epoch : run.epochs) add_point(series, static_cast<double>(epoch.epoch + 1), factor * (epoch.*field));
  return series;
}

std::string line_class(std::size_t run, std::string_view more = "") { return fmt::format("{} {} {}", colour(run), run_class(run), more); }

// Every step as a faint line, with a moving mean over it: single batches are noisy.
Figure step_chart(const std::vector<RunData>& runs, LineChart chart, double Step::*field, double factor) {
  const std::size_t most = points_per_line(2 * runs.size());
  std::size_t widest = 0;
  std::vector<Line> means;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Series all = by_step(runs[r], field, factor);
    const bool noisy = all.size() >= kWorthSmoothing;
    const std::size_t window = 2 * (all.size() / 60) + 1;
    chart.lines.push_back({noisy ? "" : runs[r].name, line_class(r, noisy ? "faint" : ""), thin(all, most), false});
    if (!noisy) continue;
    means.push_back({runs[r].name, line_class(r), smooth(all, window, most / 2), false});
    widest = std::max(widest, window);
  }
  if (widest > 0) chart.figure.note = fmt::format("Faint: every step. Bold: mean over {} steps.", widest);
  chart.lines.insert(chart.lines.end(), means.begin(), means.end());
  chart.figure.keys = run_keys(runs, "stroke");
  if (chart.figure.keys.empty()) chart.figure.keys = {{"training", "stroke c0", ""}};
  chart.x_label = "step";
  return draw(std::move(chart));
}

Figure epoch_chart(const std::vector<RunData>& runs, LineChart chart, double Epoch::*validation, double Epoch::*training, double factor) {
  const std::size_t most = points_per_line(2 * runs.size());
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto add = [&](double Epoch::*field, const char* name, const char* css) {
      Series series = thin(by_epoch(runs[r], field, factor), most);
      const bool dots = series.size() <= 40;
      const std::string full = runs.size() == 1 ? name : fmt::format("{}, {}", runs[r].name, name);
      chart.lines.push_back({full, line_class(r, css), std::move(series), dots});
    };
    add(training, "training", "dashed");
    add(validation, "validation", "");
  }
  chart.figure.keys = run_keys(runs, "stroke");
  chart.figure.keys.insert(chart.figure.keys.end(), kBothSets.begin(), kBothSets.end());
  chart.x_label = "epochs finished";
  return draw(std::move(chart));
}

using CutSeries = std::map<std::pair<int, Direction>, Series>;

CutSeries by_cut(const RunData& run, double CutStep::*field) {
  CutSeries series;
  for (const Step& step : run.steps) {
    for (const CutStep& cut : step.cuts) add_point(series[{cut.cut, cut.direction}], static_cast<double>(step.step), cut.*field);
  }
  return series;
}

std::vector<Key> cut_keys(const CutSeries& series) {
  std::map<int, Key> keys;
  for (const auto& [at, points] : series) {
    keys[at.first] = {fmt::format("cut {}", at.first), "stroke " + colour(static_cast<std::size_t>(at.first)),
                      fmt::format("cut-{}", at.first)};
  }
  std::vector<Key> list;
  list.reserve(keys.size());
  for (auto& [cut, key] : keys) list.push_back(std::move(key));
  return list;
}

// What audits measure of each cut and of all, beside its bound.
struct AuditField {
  double Audit::Cut::*of_cut;
  double Audit::*of_all;
  double Audit::*bound;
};

CutSeries by_cut(const RunData& run, const AuditField& field) {
  CutSeries series;
  for (const Audit& audit : run.audits) {
    const auto step = static_cast<double>(audit.step);
    for (const Audit::Cut& cut : audit.cuts) add_point(series[{cut.cut, cut.direction}], step, cut.*field.of_cut);
  }
  return series;
}

// One line per cut and direction of every run.
Figure cut_chart(const std::vector<RunData>& runs, LineChart chart, const std::vector<CutSeries>& all) {
  std::size_t lines = 0;
  for (const CutSeries& series : all) lines += series.size();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [at, points] : all[r]) {
      const std::string_view dashes = at.second == Direction::kBackward ? "dashed" : "";
      const std::string where = fmt::format("cut {} {}", at.first, name(at.second));
      const auto cut = static_cast<std::size_t>(at.first);
      chart.lines.push_back(
          {runs.size() == 1 ? where : fmt::format("{}, {}", runs[r].name, where),
           runs.size() == 1 ? fmt::format("thin {} cut-{} {}", colour(cut), cut, dashes) : "thin " + line_class(r, dashes),
           thin(points, points_per_line(lines)), false});
    }
  }
  chart.figure.keys = runs.size() == 1 ? cut_keys(all[0]) : run_keys(runs, "stroke");
  chart.figure.keys.insert(chart.figure.keys.end(), kBothDirections.begin(), kBothDirections.end());
  if (runs.size() > 1) chart.figure.note += " One line per cut and direction.";
  chart.x_label = "step";
  return draw(std::move(chart));
}

Figure cut_chart(const std::vector<RunData>& runs, LineChart chart, double CutStep::*field) {
  std::vector<CutSeries> all;
  for (const RunData& run : runs) all.push_back(by_cut(run, field));
  return cut_chart(runs, std::move(chart), all);
}

LineChart curve_chart(std::string id, std::string title, std::string y_label) {
  LineChart chart;
  chart.figure.id = std::move(id);
  chart.figure.title = std::move(title);
  chart.y_label = std::move(y_label);
  return chart;
}

}  // namespace

std::string colour(std::size_t index) { return fmt::format("c{}", index % kColours); }
std::string run_class(std::size_t run) { return fmt::format("run-{}", run); }

std::vector<Key> run_keys(const std::vector<RunData>& runs, const std::string& mark) {
  std::vector<Key> keys;
  for (std::size_t r = 0; r < runs.size() && runs.size() > 1; ++r) keys.push_back({runs[r].name, mark + " " + colour(r), run_class(r)});
  return keys;
}

Figure train_loss_chart(const std::vector<RunData>& runs) {
  return step_chart(runs, curve_chart("chart-train-loss", "Training loss", "loss per sample"), &Step::loss, 1);
}

Figure val_loss_chart(const std::vector<RunData>& runs) {
  return epoch_chart(runs, curve_chart("chart-val-loss", "Validation loss", "loss per sample"), &Epoch::val_loss, &Epoch::loss, 1);
}

Figure train_accuracy_chart(const std::vector<RunData>& runs) {
  return step_chart(runs, curve_chart("chart-train-accuracy", "Training accuracy", "correct (%)"), &Step::accuracy, 100);
}

Figure val_accuracy_chart(const std::vector<RunData>& runs) {
  return epoch_chart(runs, curve_chart("chart-val-accuracy", "Validation accuracy", "correct (%)"), &Epoch::val_accuracy, &Epoch::accuracy,
                     100);
}

Figure error_chart(const std::vector<RunData>& runs) {
  auto chart = curve_chart("chart-error", "Codec error", "relative error");
  chart.figure.note = "sum (x - x')\u00b2 / sum x\u00b2 of what crossed, in the steps that measured it; logarithmic, exact tensors at 0.";
  chart.logarithmic = true;
  return cut_chart(runs, std::move(chart), &CutStep::rel_error);
}

Figure bits_chart(const std::vector<RunData>& runs) {
  auto chart = curve_chart("chart-bits", "Bits per value", "bits per value");
  chart.figure.note = "8 \u00d7 wire bytes / values, headers included.";
  chart.from_zero = true;
  return cut_chart(runs, std::move(chart), &CutStep::bits_per_value);
}

namespace {

// The sum of a run's cuts as a bold line, its bound beside it.
Figure audit_chart(const std::vector<RunData>& runs, LineChart chart, const AuditField& field) {
  chart.logarithmic = true;
  std::vector<CutSeries> all;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    all.push_back(by_cut(runs[r], field));
    Series total;
    Series bound;
    for (const Audit& audit : runs[r].audits) {
      add_point(total, static_cast<double>(audit.step), audit.*field.of_all);
      add_point(bound, static_cast<double>(audit.step), audit.*field.bound);
    }
    if (total.empty()) continue;
    const std::string before = runs.size() == 1 ? "" : runs[r].name + ", ";
    chart.lines.push_back({before + "all cuts", line_class(r), thin(total, points_per_line(8)), total.size() <= 40});
    chart.lines.push_back({before + "bound", line_class(r, "faint"), thin(bound, points_per_line(8)), false});
  }
  return cut_chart(runs, std::move(chart), all);
}

}  // namespace

Figure loss_added_chart(const std::vector<RunData>& runs) {
  auto chart = curve_chart("chart-loss-added", "Loss added, by audit", "loss added");
  chart.figure.note = "What coded activations add to the loss of the same samples; bold: all cuts, faint: the bound. Logarithmic.";
  return audit_chart(runs, std::move(chart), {&Audit::Cut::loss_added, &Audit::loss_added, &Audit::loss_bound});
}

Figure harm_chart(const std::vector<RunData>& runs) {
  auto chart = curve_chart("chart-harm", "Harm by audit", "share of the gradient");
  chart.figure.note =
      "The error that coding adds to a batch's gradient, as a share of it, noise included; bold: all cuts, faint: the bound. Logarithmic.";
  return audit_chart(runs, std::move(chart), {&Audit::Cut::harm, &Audit::harm, &Audit::bound});
}

// Level from one change to the next.
Figure link_chart(const std::vector<RunData>& runs) {
  auto chart = curve_chart("chart-link", "The link that bits were chosen for", "Mbit/s");
  chart.figure.note = "Measured between steps; a line moves where bits were chosen anew (--follow-link). Logarithmic.";
  chart.figure.keys = run_keys(runs, "stroke");
  chart.figure.keys.insert(chart.figure.keys.end(), {{"up", "stroke plain", ""}, {"down", "stroke plain dashed", ""}});
  chart.logarithmic = true;
  chart.x_label = "step";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto add = [&](double RateChange::*field, const std::string& way, std::string_view dashes) {
      Series series;
      for (const RateChange& change : runs[r].rate_changes) {
        if (!series.empty()) add_point(series, static_cast<double>(change.step), series.back().y);
        add_point(series, static_cast<double>(change.step), 8 * change.*field);
      }
      if (series.empty()) return;
      if (!runs[r].steps.empty()) add_point(series, static_cast<double>(runs[r].steps.back().step), series.back().y);
      chart.lines.push_back({runs.size() == 1 ? way : runs[r].name + ", " + way, line_class(r, dashes), std::move(series), false});
    };
    add(&RateChange::up_MBps, "up", "");
    add(&RateChange::down_MBps, "down", "dashed");
  }
  return draw(std::move(chart));
}

}  // namespace epipe::report
