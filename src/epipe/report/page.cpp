#include "epipe/report/page.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "epipe/report/charts.h"
#include "epipe/report/curves.h"
#include "epipe/report/metric_tables.h"
#include "epipe/report/style.h"
#include "epipe/report/summary.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

// Title, style, notes, summary, charts, metrics and configurations, script.
constexpr std::string_view kPage = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>epipe: {0}</title>
<style>{1}</style>
</head>
<body>
<header><p>epipe report</p><h1>{0}</h1></header>
<main>
{2}{3}<div class="charts">
{4}</div>
{5}</main>
<div id="tip" role="status"></div>
<script>{6}</script>
</body>
</html>
)html";

// Runs whose folders end alike are told apart by the path the user gave, and the same folder given twice by its place.
void make_names_distinct(std::vector<RunData>& runs) {
  const auto count_names = [&] {
    std::map<std::string, int> counts;
    for (const RunData& run : runs) ++counts[run.name];
    return counts;
  };
  const auto by_folder = count_names();
  for (RunData& run : runs) run.name = by_folder.at(run.name) > 1 ? run.folder : run.name;
  const auto by_path = count_names();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (by_path.at(runs[r].name) > 1) runs[r].name += fmt::format(" ({})", r + 1);
  }
}

using Cells = std::vector<std::pair<std::string, std::string>>;  // heading, value

Cells cells_of(const RunData& run, const Summary& summary, const Summary& first, bool alone) {
  Cells cells = {{"codec", summary.codec},
                 {"top accuracy", percent_text(summary.top_accuracy)},
                 {"final loss", number_text(summary.final_loss)},
                 {"validation loss", number_text(summary.final_val_loss)},
                 {"bytes per step", bytes_text(summary.bytes_per_step)}};
  const double ratio = summary.bytes_per_step / first.bytes_per_step;
  if (!alone) cells.emplace_back("bytes vs. first run", std::isfinite(ratio) ? fmt::format("{:.3g} \u00d7", ratio) : "-");
  cells.emplace_back("samples/s", number_text(summary.samples_per_s));
  cells.emplace_back("steps", fmt::format("{}", run.steps.size()));
  cells.emplace_back("total time", seconds_text(summary.seconds));
  return cells;
}

std::string tiles(const RunData& run) {
  const Summary summary = summarize(run);
  std::string out = "<dl id=\"summary\" class=\"tiles\">\n";
  for (const auto& [heading, value] : cells_of(run, summary, summary, true)) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", heading, escape(value));
  }
  return out + "</dl>\n";
}

std::string table(const std::vector<RunData>& runs) {
  const Summary first = summarize(runs[0]);
  std::string head = R"(<th scope="col">run</th>)";
  for (const auto& [heading, value] : cells_of(runs[0], first, first, false)) head += fmt::format(R"(<th scope="col">{}</th>)", heading);
  std::string rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    rows += fmt::format(R"(<tr><th scope="row"><i class="swatch {}"></i>{}</th>)", colour(r), escape(runs[r].name));
    for (const auto& [heading, value] : cells_of(runs[r], summarize(runs[r]), first, false))
      rows += fmt::format("<td>{}</td>", escape(value));
    rows += "</tr>\n";
  }
  return fmt::format("<div class=\"scroll\"><table id=\"summary\">\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
                     head, rows);
}

std::string notes(const std::vector<RunData>& runs) {
  std::string items;
  for (const RunData& run : runs) {
    for (const std::string& note : run.notes) items += fmt::format("<li><b>{}</b>: {}</li>\n", escape(run.name), escape(note));
  }
  return items.empty() ? "" : fmt::format("<ul class=\"notes\">\n{}</ul>\n", items);
}

std::string details(const std::vector<RunData>& runs) {
  std::string out;
  for (const RunData& run : runs) out += metric_tables(run);
  for (const RunData& run : runs) {
    const std::string text = run.config.empty() ? R"(<p class="none">no data</p>)" : fmt::format("<pre>{}</pre>", escape(run.config));
    out += fmt::format("<details><summary>config.toml of {}</summary>\n{}\n</details>\n", escape(run.name), text);
  }
  return out;
}

}  // namespace

std::string page(std::vector<RunData> runs) {
  make_names_distinct(runs);
  const std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string figures;
  for (const Figure& figure : charts(runs)) figures += to_html(figure);
  return fmt::format(kPage, escape(title), kStyle, notes(runs), runs.size() == 1 ? tiles(runs[0]) : table(runs), figures, details(runs),
                     kScript);
}

}  // namespace epipe::report
