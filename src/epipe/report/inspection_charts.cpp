#include <fmt/format.h>

#include <cmath>

#include "epipe/report/curves.h"
#include "epipe/report/inspection.h"
#include "epipe/report/line_chart.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

std::string title_of(const InspectedCut& cut) { return fmt::format("cut {} {}", cut.cut, name(cut.direction)); }

std::string css_of(const InspectedCut& cut) {
  return colour(static_cast<std::size_t>(cut.cut)) + (cut.direction == Direction::kBackward ? " dashed" : "");
}

std::vector<Key> keys_of(const RunData& run) {
  std::vector<Key> keys;
  for (const InspectedCut& cut : run.inspection) keys.push_back({title_of(cut), "stroke " + css_of(cut), ""});
  return keys;
}

// The share of all values in each non-empty bin, at the bin's middle.
Series shares(const Bins& bins, double values, double from, double unit) {
  Series series;
  for (std::size_t b = 1; b + 1 < bins.counts.size(); ++b) {
    const double middle = bins.low + bins.width * (static_cast<double>(b) - 0.5);
    if (bins.counts[b] > 0 && values > 0) series.push_back({(middle - from) / unit, 100 * bins.counts[b] / values});
  }
  return series;
}

LineChart inspection_chart(const RunData& run, std::string id, std::string title, std::string note) {
  LineChart chart;
  chart.figure = {std::move(id), std::move(title), std::move(note), keys_of(run), "", false};
  chart.y_label = "share of the values (%)";
  chart.logarithmic = true;
  return chart;
}

Figure value_chart(const RunData& run, const std::string& id, const std::string& suffix) {
  LineChart chart = inspection_chart(run, "chart-values" + id, "Values at the cuts" + suffix,
                                     "Each in its own standard deviations from its mean, 8 to each side.");
  chart.x_label = "value (standard deviations)";
  for (const InspectedCut& cut : run.inspection) {
    const double unit = cut.deviation > 0 ? cut.deviation : 1;
    chart.lines.push_back({title_of(cut), css_of(cut), shares(cut.histogram, cut.values, cut.mean, unit), false});
  }
  return draw(std::move(chart));
}

Figure magnitude_chart(const RunData& run, const std::string& id, const std::string& suffix) {
  LineChart chart = inspection_chart(run, "chart-magnitudes" + id, "Magnitudes at the cuts" + suffix, "Zeros are in the table, not here.");
  chart.x_label = "log2 of the magnitude";
  for (const InspectedCut& cut : run.inspection) {
    chart.lines.push_back({title_of(cut), css_of(cut), shares(cut.log2_histogram, cut.values, 0, 1), false});
  }
  return draw(std::move(chart));
}

std::string row_of(const std::string& head, const std::vector<std::string>& cells) {
  std::string row = fmt::format(R"(<tr><th scope="row">{}</th>)", escape(head));
  for (const std::string& cell : cells) row += fmt::format("<td>{}</td>", escape(cell));
  return row + "</tr>\n";
}

std::string table_of(const std::vector<std::string>& heads, const std::string& rows) {
  std::string head;
  for (const std::string& text : heads) head += fmt::format(R"(<th scope="col">{}</th>)", escape(text));
  return fmt::format("<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n", head, rows);
}

Figure moments(const RunData& run, const std::string& id, const std::string& suffix) {
  std::string rows;
  for (const InspectedCut& cut : run.inspection) {
    rows += row_of(title_of(cut), {cut.layer, number_text(cut.values), percent_text(cut.zeros / cut.values), number_text(cut.min),
                                   number_text(cut.max), number_text(cut.mean), number_text(cut.deviation), number_text(cut.kurtosis)});
  }
  Figure figure{"inspection-moments" + id,
                "What crosses the cuts" + suffix,
                "Before any codec. A normal distribution has a kurtosis of 3.",
                {},
                "",
                true};
  figure.svg = table_of({"", "into", "values", "zeros", "min", "max", "mean", "std", "kurtosis"}, rows);
  return figure;
}

std::string error_text(const CodecError& error) {
  if (!std::isfinite(error.rel_error)) return "failed";
  return fmt::format("{} at {} bits", number_text(error.rel_error), number_text(error.bits_per_value));
}

// One row per codec, one column per cut and direction.
Figure errors(const RunData& run, const std::string& id, const std::string& suffix) {
  std::vector<std::string> heads = {"codec"};
  for (const InspectedCut& cut : run.inspection) heads.push_back(title_of(cut));
  std::string rows;
  for (std::size_t c = 0; c < run.inspection[0].codecs.size(); ++c) {
    std::vector<std::string> cells;
    for (const InspectedCut& cut : run.inspection) cells.push_back(c < cut.codecs.size() ? error_text(cut.codecs[c]) : "-");
    rows += row_of(run.inspection[0].codecs[c].codec, cells);
  }
  Figure figure{"inspection-codecs" + id,
                "Error of the codecs on these tensors" + suffix,
                "sum (x-x')\u00b2 / sum x\u00b2, and bits per value on the wire.",
                {},
                "",
                true};
  if (!rows.empty()) figure.svg = table_of(heads, rows);
  return figure;
}

}  // namespace

std::vector<Figure> inspection_charts(const std::vector<RunData>& runs) {
  std::vector<Figure> figures;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].inspection.empty()) continue;
    const std::string id = fmt::format("-{}", r);
    const std::string suffix = runs.size() == 1 ? "" : ": " + runs[r].name;
    figures.push_back(value_chart(runs[r], id, suffix));
    figures.push_back(magnitude_chart(runs[r], id, suffix));
    figures.push_back(moments(runs[r], id, suffix));
    figures.push_back(errors(runs[r], id, suffix));
  }
  return figures;
}

}  // namespace epipe::report
