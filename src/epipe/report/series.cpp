#include "epipe/report/series.h"

#include <algorithm>

namespace epipe::report {

Series thin(const Series& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t inner = points.size() - 2;
  const std::size_t stretches = (most - 2) / 2;
  Series out = {points.front()};
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + 1 + static_cast<std::ptrdiff_t>(inner * s / stretches);
    const auto end = points.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (s + 1) / stretches);
    const auto [low, high] = std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    out.push_back(*std::min(low, high));
    if (low != high) out.push_back(*std::max(low, high));
  }
  out.push_back(points.back());
  return out;
}

Series smooth(const Series& points, std::size_t window, std::size_t most) {
  const std::size_t n = points.size();
  std::vector<double> sums(n + 1, 0.0);  // sums[i]: of the first i values
  for (std::size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + points[i].y;
  const std::size_t count = std::min(n, most);
  Series out;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t at = count == 1 ? 0 : k * (n - 1) / (count - 1);
    const std::size_t begin = at - std::min(window / 2, at);
    const std::size_t end = std::min(n, at + window / 2 + 1);
    out.push_back({points[at].x, (sums[end] - sums[begin]) / static_cast<double>(end - begin)});
  }
  return out;
}

}  // namespace epipe::report
