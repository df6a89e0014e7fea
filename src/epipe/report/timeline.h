#pragma once

#include <cstddef>

#include "epipe/report/figure.h"
#include "epipe/report/run_data.h"

namespace epipe::report {

// An interval of a trace, in microseconds of its clock.
struct Window {
  double start = 0;
  double end = 0;

  double length() const { return end - start; }
};

// Three steps in the middle of the trace, or fewer if these have more than `most_spans` spans. Empty if the trace is.
Window choose_window(const Trace& trace, std::size_t most_spans);

// One row per track, with time to the right; the width is `microseconds`:
//
//   worker 0  |F 0 0|F 1 0|..wait..|B 0 0|B 1 0|
//   worker 1  |wait|F 0 1|F 1 1|B 0 1|B 1 1|
Figure draw_timeline(Figure figure, const Trace& trace, const Window& window, double microseconds);

}  // namespace epipe::report
