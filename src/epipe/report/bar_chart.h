#pragma once

#include <string>
#include <vector>

#include "epipe/report/figure.h"

namespace epipe::report {

// A part of a stacked bar.
struct Segment {
  double value;
  std::string css;
  std::string title;  // shows when the pointer rests on it
};

struct Bar {
  std::vector<Segment> segments;
  std::string label;  // behind the bar's end
  std::string css;    // of the whole bar
};

struct BarGroup {
  std::string name;
  std::vector<Bar> bars;
};

// Lying bars from zero on, in groups with a common name; `figure` gives everything but the drawing.
struct BarChart {
  Figure figure;
  std::string x_label;
  std::vector<BarGroup> groups;
};

Figure draw(BarChart chart);

}  // namespace epipe::report
