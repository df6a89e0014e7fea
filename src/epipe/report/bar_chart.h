#pragma once

#include <string>
#include <vector>

#include "epipe/report/figure.h"

namespace epipe::report {

// A part of a stacked bar.
struct Segment {
  double value;
  std::string css;
  std::string title;  // tooltip
};

struct Bar {
  std::vector<Segment> segments;
  std::string label;  // after the bar's end
  std::string css;    // for the whole bar
};

struct BarGroup {
  std::string name;
  std::vector<Bar> bars;
};

// Horizontal bars starting at zero, in named groups; `figure` gives everything but the drawing.
struct BarChart {
  Figure figure;
  std::string x_label;
  std::vector<BarGroup> groups;
};

Figure draw(BarChart chart);

}  // namespace epipe::report
