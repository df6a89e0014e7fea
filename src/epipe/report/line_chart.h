#pragma once

#include <string>
#include <vector>

#include "epipe/report/figure.h"
#include "epipe/report/series.h"

namespace epipe::report {

struct Line {
  std::string name;
  std::string css;  // "c0", "c0 dashed", "c0 faint"
  Series points;
  bool dots = false;
};

// Curves over steps or epochs; `figure` gives everything but the drawing.
struct LineChart {
  Figure figure;
  std::string x_label;
  std::string y_label;
  bool logarithmic = false;  // in y
  bool from_zero = false;    // in y
  std::vector<Line> lines;
};

Figure draw(LineChart chart);

}  // namespace epipe::report
