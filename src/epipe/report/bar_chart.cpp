#include "epipe/report/bar_chart.h"

#include <algorithm>

#include "epipe/report/axis.h"
#include "epipe/report/svg.h"
#include "epipe/report/text.h"

namespace epipe::report {
namespace {

constexpr double kBarWidth = 620;
constexpr double kBarTop = 6;
constexpr double kBar = 16;  // height
constexpr double kBarGap = 3;
constexpr double kGroupGap = 12;
constexpr double kBarUnder = 44;  // for ticks and label
constexpr double kBarPerCharacter = 6.4;
constexpr std::size_t kBarLongestName = 24;

struct Layout {
  double left, right, bottom;
};

Layout layout_of(const BarChart& chart) {
  std::size_t name = 0;
  std::size_t label = 0;
  double bottom = kBarTop;
  for (const BarGroup& group : chart.groups) {
    name = std::max(name, std::min(characters(group.name), kBarLongestName));
    for (const Bar& bar : group.bars) label = std::max(label, characters(bar.label));
    bottom += static_cast<double>(group.bars.size()) * (kBar + kBarGap) + kGroupGap;
  }
  const double behind = std::min(static_cast<double>(label) * kBarPerCharacter, kBarWidth * 0.42);
  return {static_cast<double>(name) * kBarPerCharacter + 18, kBarWidth - behind - 14, bottom};
}

double total(const Bar& bar) {
  double sum = 0;
  for (const Segment& segment : bar.segments) sum += segment.value;
  return sum;
}

double longest(const BarChart& chart) {
  double most = 0;
  for (const BarGroup& group : chart.groups) {
    for (const Bar& bar : group.bars) most = std::max(most, total(bar));
  }
  return most;
}

void draw_value_axis(Svg& svg, const BarChart& chart, const Axis& x, const Layout& layout) {
  for (const Tick& tick : x.ticks()) {
    svg.line({tick.at, kBarTop}, {tick.at, layout.bottom}, "grid");
    svg.text({tick.at, layout.bottom + 17}, "tick mid", tick.text);
  }
  svg.line({layout.left, kBarTop}, {layout.left, layout.bottom}, "rule");
  svg.text({(layout.left + layout.right) / 2, layout.bottom + kBarUnder - 7}, "label mid", chart.x_label);
}

void draw_bar(Svg& svg, const Bar& bar, const Axis& x, double top) {
  double sum = 0;
  for (const Segment& segment : bar.segments) {
    const double from = x.at(sum);
    sum += segment.value;
    svg.rect({from, top}, std::max(x.at(sum) - from, 0.2), kBar, "bar " + segment.css + " " + bar.css, segment.title);
  }
  svg.text({x.at(sum) + 7, top + kBar - 4}, "tick " + bar.css, bar.label);
}

}  // namespace

Figure draw(BarChart chart) {
  const double most = longest(chart);
  if (!(most > 0)) return std::move(chart.figure);
  const Layout layout = layout_of(chart);
  const Axis x = Axis::tight(0, most, layout.left, layout.right, 5);
  Svg svg(kBarWidth, layout.bottom + kBarUnder, chart.figure.title, R"(class="bars")");
  draw_value_axis(svg, chart, x, layout);
  double top = kBarTop + kGroupGap / 2;
  for (const BarGroup& group : chart.groups) {
    const double height = static_cast<double>(group.bars.size()) * (kBar + kBarGap);
    svg.text({layout.left - 8, top + height / 2 + 3}, "name end", shorten(group.name, kBarLongestName));
    for (const Bar& bar : group.bars) {
      draw_bar(svg, bar, x, top);
      top += kBar + kBarGap;
    }
    top += kGroupGap;
  }
  chart.figure.svg = std::move(svg).str();
  return std::move(chart.figure);
}

}  // namespace epipe::report
