#include "epipe/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "epipe/report/axis.h"
#include "epipe/report/svg.h"

namespace epipe::report {
namespace {

constexpr double kLineWidth = 620;
constexpr double kHeight = 290;
constexpr double kLeft = 62;
constexpr double kLineRight = kLineWidth - 14;
constexpr double kLineTop = 10;
constexpr double kBottom = kHeight - 44;

// The ranges the axes must cover.
struct Bounds {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low;
  double y_low = x_low, y_high = -x_low;
  double y_low_positive = x_low;
  bool zero = false;  // a y that is not positive

  void add(const Point& p) {
    x_low = std::min(x_low, p.x);
    x_high = std::max(x_high, p.x);
    y_low = std::min(y_low, p.y);
    y_high = std::max(y_high, p.y);
    zero = zero || p.y <= 0;
    if (p.y > 0) y_low_positive = std::min(y_low_positive, p.y);
  }
};

Axis y_axis(const Bounds& bounds, bool logarithmic) {
  if (!logarithmic) return Axis::linear(bounds.y_low, bounds.y_high, kBottom, kLineTop, 5);
  if (bounds.y_high <= 0) return Axis::logarithmic(1e-8, 1, true, kBottom, kLineTop);  // nothing but zeros: any scale above them will do
  return Axis::logarithmic(bounds.y_low_positive, bounds.y_high, bounds.zero, kBottom, kLineTop);
}

void draw_axes(Svg& svg, const LineChart& chart, const Axis& x, const Axis& y) {
  for (const Tick& tick : y.ticks()) {
    svg.line({kLeft, tick.at}, {kLineRight, tick.at}, "grid");
    svg.text({kLeft - 7, tick.at + 4}, "tick end", tick.text);
  }
  for (const Tick& tick : x.ticks()) {
    svg.line({tick.at, kBottom}, {tick.at, kBottom + 4}, "rule");
    svg.text({tick.at, kBottom + 17}, "tick mid", tick.text);
  }
  svg.line({kLeft, kBottom}, {kLineRight, kBottom}, "rule");
  svg.text({(kLeft + kLineRight) / 2, kHeight - 7}, "label mid", chart.x_label);
  svg.text({13, (kLineTop + kBottom) / 2}, "label mid", chart.y_label, -90);
}

void draw_line(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  Series pixels;
  for (const Point& p : line.points) pixels.push_back({x.at(p.x), y.at(p.y)});
  svg.path(pixels, "line " + line.css, line.name);
  if (!line.dots && pixels.size() > 1) return;
  for (const Point& p : pixels) svg.dot(p, "dot " + line.css);
}

}  // namespace

Figure draw(LineChart chart) {
  Bounds bounds;
  for (const Line& line : chart.lines) {
    for (const Point& p : line.points) bounds.add(p);
  }
  if (bounds.x_low > bounds.x_high) return std::move(chart.figure);
  if (bounds.x_low == bounds.x_high) bounds.x_low -= 1, bounds.x_high += 1;
  if (chart.from_zero) bounds.add({bounds.x_low, 0});
  const Axis x = Axis::tight(bounds.x_low, bounds.x_high, kLeft, kLineRight, 8, 1);
  const Axis y = y_axis(bounds, chart.logarithmic);
  Svg svg(kLineWidth, kHeight, chart.figure.title,
          fmt::format(R"(class="lines" data-x="{}" data-y="{}")", x.description(), y.description()));
  draw_axes(svg, chart, x, y);
  for (const Line& line : chart.lines) draw_line(svg, line, x, y);
  svg.line({0, kLineTop}, {0, kBottom}, "cursor");
  chart.figure.svg = std::move(svg).str();
  return std::move(chart.figure);
}

}  // namespace epipe::report
