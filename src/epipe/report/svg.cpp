#include "epipe/report/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "epipe/report/text.h"

namespace epipe::report {
namespace {

// A tenth of a pixel is precise enough, and long paths consist mostly of these numbers.
std::string px(double value) {
  const double tenths = std::round(value * 10);
  return std::fmod(tenths, 10) == 0 ? fmt::format("{:.0f}", tenths / 10) : fmt::format("{:.1f}", tenths / 10);
}

}  // namespace

Svg::Svg(double width, double height, std::string_view label, std::string_view attributes) {
  out_ = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" {}>\n", px(width),
                     px(height), escape(label), attributes);
}

void Svg::line(const Point& from, const Point& to, std::string_view css) {
  fmt::format_to(std::back_inserter(out_), "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", css, px(from.x), px(from.y),
                 px(to.x), px(to.y));
}

void Svg::rect(const Point& corner, double width, double height, std::string_view css, std::string_view title) {
  fmt::format_to(std::back_inserter(out_), R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}")", css, px(corner.x), px(corner.y),
                 px(width), px(height));
  out_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape(title));
}

void Svg::dot(const Point& centre, std::string_view css) {
  fmt::format_to(std::back_inserter(out_), "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>\n", css, px(centre.x), px(centre.y));
}

void Svg::text(const Point& at, std::string_view css, std::string_view text, double turned) {
  const std::string turn = turned == 0 ? "" : fmt::format(R"-( transform="rotate({} {} {})")-", turned, px(at.x), px(at.y));
  fmt::format_to(std::back_inserter(out_), "<text class=\"{}\" x=\"{}\" y=\"{}\"{}>{}</text>\n", css, px(at.x), px(at.y), turn,
                 escape(text));
}

void Svg::path(const Series& points, std::string_view css, std::string_view name) {
  if (points.empty()) return;
  fmt::format_to(std::back_inserter(out_), R"(<path class="{}" data-name="{}" d="M)", css, escape(name));
  for (const Point& p : points) fmt::format_to(std::back_inserter(out_), "{} {} ", px(p.x), px(p.y));
  out_.back() = '"';
  out_ += "/>\n";
}

}  // namespace epipe::report
