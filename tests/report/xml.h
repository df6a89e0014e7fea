#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace epipe::testing {

// Empty for well-formed XML of the kind the page's pictures are (elements, quoted attributes, text, the five entities), otherwise what
// is wrong with it.
inline std::string xml_problem(std::string_view xml) {
  static const std::set<std::string, std::less<>> kEntities = {"amp", "lt", "gt", "quot", "#39"};
  std::vector<std::string> open;
  const auto near = [&](std::size_t at) { return std::string(xml.substr(at, 60)); };
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&' && !kEntities.contains(xml.substr(i + 1, xml.find(';', i) - i - 1))) return "unknown entity at " + near(i);
    if (xml[i] == '>') return "stray > at " + near(i);
    if (xml[i] != '<') continue;
    const std::size_t start = i++;
    const bool closes = xml[i] == '/';
    i += closes ? 1U : 0U;
    const std::string name(xml.substr(i, xml.find_first_of(" >/", i) - i));
    if (name.empty()) return "stray < at " + near(start);
    std::set<std::string_view> attributes;
    for (i += name.size(); i < xml.size() && xml[i] != '>' && xml[i] != '/'; ++i) {
      if (xml[i] == ' ') continue;
      const std::size_t equals = xml.find("=\"", i);
      const std::size_t quote = equals == std::string_view::npos ? equals : xml.find('"', equals + 2);
      if (quote == std::string_view::npos) return "attribute without a value at " + near(i);
      if (!attributes.insert(xml.substr(i, equals - i)).second) return "attribute twice at " + near(i);
      if (xml.substr(i, quote - i).find('<') != std::string_view::npos) return "< in an attribute at " + near(i);
      i = quote;
    }
    const bool empty = i < xml.size() && xml[i] == '/';
    i += empty ? 1U : 0U;
    if (i >= xml.size() || xml[i] != '>') return "element without an end at " + near(start);
    if (!closes && !empty) open.push_back(name);
    if (!closes) continue;
    if (open.empty() || open.back() != name) return "nothing to close at " + near(start);
    open.pop_back();
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

}  // namespace epipe::testing
