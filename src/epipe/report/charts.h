#pragma once

#include <vector>

#include "epipe/report/figure.h"
#include "epipe/report/run_data.h"

namespace epipe::report {

// All charts of the page, top to bottom. One run has a colour per cut; several have a colour per run, the same in every chart. The caller
// makes the runs' names distinct.
std::vector<Figure> charts(const std::vector<RunData>& runs);

}  // namespace epipe::report
