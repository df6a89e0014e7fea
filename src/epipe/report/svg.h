#pragma once

#include <string>
#include <string_view>

#include "epipe/report/series.h"

namespace epipe::report {

// Builds one inline SVG. Positions are pixels from the top left; `css` holds class names; text is escaped here.
class Svg {
 public:
  // `label` is for screen readers; `attributes` are additional ones, already escaped.
  Svg(double width, double height, std::string_view label, std::string_view attributes = "");

  void line(const Point& from, const Point& to, std::string_view css);
  // `title` is the rectangle's tooltip, if not empty.
  void rect(const Point& corner, double width, double height, std::string_view css, std::string_view title = "");
  void dot(const Point& centre, std::string_view css);
  void text(const Point& at, std::string_view css, std::string_view text, double turned = 0);
  // Straight lines through the points; the script reads the name and the points back for its tooltip.
  void path(const Series& points, std::string_view css, std::string_view name);

  std::string str() && { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

}  // namespace epipe::report
