#pragma once

#include <cstddef>
#include <vector>

namespace epipe::report {

struct Point {
  double x;
  double y;
};

// A curve: finite points in ascending order of x.
using Series = std::vector<Point>;

// At most `most` points (4 or more) that keep the first, the last and the extremes of every interval in between.
Series thin(const Series& points, std::size_t most);

// At most `most` points, each the mean of the `window` (odd) points around it, or of fewer at the ends.
Series smooth(const Series& points, std::size_t window, std::size_t most);

}  // namespace epipe::report
