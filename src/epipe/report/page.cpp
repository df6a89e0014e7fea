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

// Title, style, kind of page, notes and summary, charts, metrics and configurations, script, additions to the policy.
constexpr std::string_view kPage = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'{7}">
<title>epipe: {0}</title>
<style>{1}</style>
</head>
<body>
<header>{2}<h1>{0}</h1></header>
<main>
{3}<div class="charts">
{4}</div>
{5}</main>
<div id="tip" role="status"></div>
<script>{6}</script>
</body>
</html>
)html";

constexpr std::string_view kReport = "<p>epipe report</p>";
// Tells screen readers whether the page is following, and pauses while somebody reads.
constexpr std::string_view kWatch =
    R"html(<p id="live">epipe watch: <span id="live-state" role="status">connecting</span>
<button type="button" id="pause" aria-pressed="false">Pause</button></p>)html";

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

std::string assemble(const std::vector<RunData>& runs, const std::vector<PagePart>& parts, bool live) {
  const std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string figures;
  for (std::size_t p = 2; p + 1 < parts.size(); ++p) figures += parts[p].html;
  return fmt::format(kPage, escape(title), kStyle, live ? kWatch : kReport, parts[0].html + parts[1].html, figures, parts.back().html,
                     fmt::format("{}{}", kScript, live ? kLiveScript : ""), live ? "; connect-src 'self'" : "");
}

}  // namespace

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

std::vector<PagePart> page_parts(const std::vector<RunData>& runs) {
  const auto part = [](const std::string& id, const std::string& html) {
    return PagePart{id, fmt::format("<div id=\"{}\">\n{}</div>\n", id, html)};
  };
  std::vector<PagePart> parts = {part("notes", notes(runs)), part("overview", runs.size() == 1 ? tiles(runs[0]) : table(runs))};
  for (const Figure& figure : charts(runs)) parts.push_back({figure.id, to_html(figure)});
  parts.push_back(part("details", details(runs)));
  return parts;
}

std::string live_page(const std::vector<RunData>& runs, const std::vector<PagePart>& parts) { return assemble(runs, parts, true); }

std::string page(std::vector<RunData> runs) {
  make_names_distinct(runs);
  return assemble(runs, page_parts(runs), false);
}

}  // namespace epipe::report
