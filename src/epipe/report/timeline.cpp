#include "epipe/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "epipe/report/axis.h"
#include "epipe/report/svg.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

constexpr std::int64_t kFirstHelper = 100;  // thread id
constexpr double kTimelineWidth = 1258;
constexpr double kTimelineRight = kTimelineWidth - 16;
constexpr double kTimelineTop = 22;
constexpr double kRowGap = 5;
constexpr double kSpanGap = 0.5;
constexpr double kTimelineUnder = 44;  // for ticks and label
constexpr double kTimelinePerCharacter = 6.4;
constexpr std::size_t kTimelineLongestName = 28;

double end_of(const Span& span) { return span.start_us + span.duration_us; }
bool inside(const Span& span, const Window& window) { return span.start_us < window.end && end_of(span) > window.start; }
bool is_helper(const Track& track) { return track.thread >= kFirstHelper; }
double height_of(const Track& track) { return is_helper(track) ? 13 : 26; }

std::size_t spans_in(const Trace& trace, const Window& window) {
  return static_cast<std::size_t>(std::count_if(trace.spans.begin(), trace.spans.end(), [&](const Span& s) { return inside(s, window); }));
}

// From the first to the last moment of each step.
std::map<std::int64_t, Window> windows_of_steps(const Trace& trace) {
  std::map<std::int64_t, Window> windows;
  for (const Span& span : trace.spans) {
    if (span.step < 0) continue;
    const auto [at, added] = windows.try_emplace(span.step, Window{span.start_us, end_of(span)});
    at->second.start = std::min(at->second.start, span.start_us);
    at->second.end = std::max(at->second.end, end_of(span));
  }
  return windows;
}

// Ends the window where the first span that does not fit begins.
Window shortened(const Trace& trace, Window window, std::size_t most_spans) {
  std::size_t seen = 0;
  for (const Span& span : trace.spans) {
    if (!inside(span, window) || ++seen <= most_spans) continue;
    window.end = std::max(span.start_us, window.start + 1e-3);
    break;
  }
  return window;
}

// Maps a time of the trace's clock to pixels. The clock may count from 1970, so the window's start is subtracted first.
struct TimeAxis {
  Axis axis;
  double start_us;
  double units_per_us;

  double at(double us) const { return axis.at((us - start_us) * units_per_us); }
};

struct Rows {
  double left = 0;
  double bottom = kTimelineTop;
  std::vector<double> tops;  // by track; negative: nothing in it is shown
};

Rows rows_of(const Trace& trace, const Window& window) {
  std::set<std::size_t> used;
  for (const Span& span : trace.spans) {
    if (inside(span, window)) used.insert(span.track);
  }
  Rows rows;
  std::size_t longest = 0;
  rows.tops.assign(trace.tracks.size(), -1);
  for (const std::size_t t : used) {
    rows.tops[t] = rows.bottom;
    rows.bottom += height_of(trace.tracks[t]) + kRowGap;
    longest = std::max(longest, std::min(characters(trace.tracks[t].name), kTimelineLongestName));
  }
  rows.left = static_cast<double>(longest) * kTimelinePerCharacter + 18;
  return rows;
}

std::string span_title(const Span& span) {
  const std::string step = span.step < 0 ? "" : fmt::format(", step {}", span.step);
  return fmt::format("{} ({}){}: {}", span.name, kActivities[span.activity], step, seconds_text(span.duration_us / 1e6));
}

void draw_span(Svg& svg, const Span& span, const TimeAxis& x, const Window& window, double top, double height) {
  const double from = x.at(std::max(span.start_us, window.start));
  const double to = x.at(std::min(end_of(span), window.end));
  svg.rect({from, top}, std::max(to - from - kSpanGap, 0.3), height, fmt::format("span a-{}", kActivities[span.activity]),
           span_title(span));
  const bool named = height > 20 && span.activity <= activity_of("backward");
  if (named && to - from > static_cast<double>(characters(span.name)) * 5.6 + 4) {
    svg.text({(from + to) / 2, top + height / 2 + 3.5}, "inside mid", span.name);
  }
}

void draw_steps(Svg& svg, const Trace& trace, const Window& window, const TimeAxis& x, const Rows& rows) {
  for (const auto& [step, when] : windows_of_steps(trace)) {
    if (when.start < window.start || when.start >= window.end) continue;
    const double at = x.at(when.start);
    svg.line({at, kTimelineTop - 14}, {at, rows.bottom}, "step");
    svg.text({at + 4, kTimelineTop - 6}, "tick", fmt::format("step {}", step));
  }
}

void draw_time_axis(Svg& svg, const TimeAxis& x, const Rows& rows, const std::string& label) {
  for (const Tick& tick : x.axis.ticks()) {
    svg.line({tick.at, kTimelineTop}, {tick.at, rows.bottom}, "grid");
    svg.text({tick.at, rows.bottom + 17}, "tick mid", tick.text);
  }
  svg.text({(rows.left + kTimelineRight) / 2, rows.bottom + kTimelineUnder - 7}, "label mid", label);
}

void draw_names(Svg& svg, const Trace& trace, const Rows& rows) {
  for (std::size_t t = 0; t < trace.tracks.size(); ++t) {
    if (rows.tops[t] < 0) continue;
    const double height = height_of(trace.tracks[t]);
    svg.text({rows.left - 8, rows.tops[t] + height / 2 + 4}, is_helper(trace.tracks[t]) ? "tick end" : "name end",
             shorten(trace.tracks[t].name, kTimelineLongestName));
  }
}

}  // namespace

Window choose_window(const Trace& trace, std::size_t most_spans) {
  if (trace.spans.empty()) return {};
  std::vector<Window> steps;
  for (const auto& [step, window] : windows_of_steps(trace)) steps.push_back(window);
  Window chosen{trace.spans.front().start_us, 0};
  for (const Span& span : trace.spans) chosen.end = std::max(chosen.end, end_of(span));
  for (std::size_t count = std::min<std::size_t>(3, steps.size()); count > 0; --count) {
    const std::size_t first = (steps.size() - count + 1) / 2;
    chosen = {steps[first].start, steps[first].end};
    for (std::size_t s = first; s < first + count; ++s) chosen.end = std::max(chosen.end, steps[s].end);
    if (spans_in(trace, chosen) <= most_spans) break;
  }
  return shortened(trace, chosen, most_spans);
}

Figure draw_timeline(Figure figure, const Trace& trace, const Window& window, double microseconds) {
  if (trace.spans.empty() || !(window.length() > 0)) return figure;
  const Rows rows = rows_of(trace, window);
  const Unit unit = seconds_unit(microseconds / 1e6);
  const double scale = 1e-6 / unit.size;
  const TimeAxis x{Axis::tight(0, microseconds * scale, rows.left, kTimelineRight, 12), window.start, scale};
  Svg svg(kTimelineWidth, rows.bottom + kTimelineUnder, figure.title, R"(class="timeline")");
  draw_time_axis(svg, x, rows, fmt::format("time ({})", unit.name));
  draw_steps(svg, trace, window, x, rows);
  draw_names(svg, trace, rows);
  for (const Span& span : trace.spans) {
    if (inside(span, window)) draw_span(svg, span, x, window, rows.tops[span.track], height_of(trace.tracks[span.track]));
  }
  figure.svg = std::move(svg).str();
  return figure;
}

}  // namespace epipe::report
