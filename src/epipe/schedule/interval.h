#pragma once

namespace epipe::schedule {

struct Interval {
  double start = 0;
  double end = 0;
};

}  // namespace epipe::schedule
