#pragma once

#include <string>
#include <vector>

namespace epipe::report {

// One entry of a legend.
struct Key {
  std::string text;
  std::string css;      // for its mark: "swatch c0", "stroke c0", "stroke dashed"
  std::string toggles;  // the class that a click on it hides; empty: not clickable
};

// A chart with its title, note and legend. An empty `svg` shows "no data".
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
