#pragma once

#include <string>
#include <vector>

namespace epipe::report {

// One entry of a legend.
struct Key {
  std::string text;
  std::string css;      // of its mark: "swatch c0", "stroke c0", "stroke dashed"
  std::string toggles;  // the class of what a click on it hides; empty: it does not click
};

// A chart with what surrounds it. An empty `svg` says "no data".
struct Figure {
  std::string id;
  std::string title;
  std::string note;  // how to read it
  std::vector<Key> keys;
  std::string svg;
  bool wide = false;  // takes the whole width of the page
};

std::string to_html(const Figure& figure);

}  // namespace epipe::report
