// Rows as text: markdown for humans, JSON lines for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/experiment/table.h"

namespace epipe::experiment {
namespace {

std::string or_dash(double value, std::string_view form) { return value < 0 ? "-" : fmt::format(fmt::runtime(form), value); }

std::string quality(const Row& row) {
  if (row.parameters >= 0) return fmt::format("{:.2f} million parameters", row.parameters / 1e6);
  if (!row.has_mean) return "-";
  const std::string deviation = row.deviation < 0 ? "" : fmt::format(" \u00b1 {:.2f}", row.deviation);
  return fmt::format("{} {:.2f}{} ({} {})", row.metric, row.mean, deviation, row.seeds, row.seeds == 1 ? "seed" : "seeds");
}

std::string bandwidth(const Row& row) {
  std::vector<std::string> cuts;
  for (const double rate : row.bandwidth_MBps) cuts.push_back(fmt::format("{:.3g}", rate));
  return cuts.empty() ? "-" : fmt::format("{}", fmt::join(cuts, " / "));
}

// The parts of a step by time, the longest first.
std::string parts(const Row& row) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [part, seconds] : row.parts) {
    if (seconds >= 5e-5) sorted.emplace_back(seconds, part);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  std::vector<std::string> texts;
  for (const auto& [seconds, part] : sorted) texts.push_back(fmt::format("{} {:.3g}", part, seconds));
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, ", "));
}

std::string where(const Row& row) { return row.data.empty() ? row.settings : fmt::format("{}, {}", row.data, row.settings); }

// Cells must not end a row early.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string ran_line(const Row& r) {
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", r.entry.id, cell(describe(r.entry)),
                     cell(describe(r.entry.published)), cell(quality(r)), or_dash(r.bits_per_value, "{:.3g}"),
                     or_dash(r.samples_per_s, "{:.1f}"), or_dash(r.seconds_per_batch, "{:.3g}"), or_dash(r.speedup, "{:.3g}"), bandwidth(r),
                     cell(parts(r)), cell(where(r)));
}

nlohmann::ordered_json json_of(const Row& r) {
  nlohmann::ordered_json line = {{"id", r.entry.id}, {"table", r.entry.table}, {"what", describe(r.entry)}};
  for (const auto& [name, value] : r.entry.published) line["published"][name] = value;
  if (!r.entry.note.empty()) line["note"] = r.entry.note;
  if (!r.not_run.empty()) {
    line["not_run"] = r.not_run;
    return line;
  }
  const auto add = [&](const char* name, double value) {
    if (value >= 0) line[name] = value;
  };
  line["settings"] = r.settings;
  line["data"] = r.data;
  line["seeds"] = r.seeds;
  line["steps"] = r.steps;
  if (r.has_mean) {
    line["metric"] = r.metric;
    line["mean"] = r.mean;
  }
  add("deviation", r.deviation);
  add("bits_per_value", r.bits_per_value);
  add("wire_bytes_per_step", r.wire_bytes_per_step);
  add("samples_per_s", r.samples_per_s);
  add("seconds_per_batch", r.seconds_per_batch);
  add("speedup", r.speedup);
  if (!r.bandwidth_MBps.empty()) line["bandwidth_MBps"] = r.bandwidth_MBps;
  if (!r.parts.empty()) line["parts"] = r.parts;
  add("parameters", r.parameters);
  return line;
}

}  // namespace

std::string to_markdown(const std::vector<Row>& rows) {
  std::string ran;
  std::string not_run;
  for (const Row& row : rows) {
    if (row.not_run.empty()) {
      ran += ran_line(row);
    } else {
      not_run += fmt::format("| {} | {} | {} | {} |\n", row.entry.id, cell(describe(row.entry)), cell(describe(row.entry.published)),
                             cell(row.not_run));
    }
  }
  std::string text;
  if (!ran.empty()) {
    text +=
        "| id | what | published | ours | bits/value | samples/s | s/batch | speed-up | MB/s by cut | s per step by part, all workers | on "
        "|\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n" +
        ran;
  }
  if (!not_run.empty()) {
    text += ran.empty() ? "" : "\n";
    text += "| not run | what | published | reason |\n|---|---|---|---|\n";
    text += not_run;
  }
  return text;
}

std::string to_json_lines(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) text += json_of(row).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return text;
}

}  // namespace epipe::experiment
