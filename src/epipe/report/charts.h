#pragma once

#include <vector>

#include "epipe/report/figure.h"
#include "epipe/report/run_data.h"

namespace epipe::report {

// Every chart of the page, top to bottom. One run has a colour per cut; several have a colour per run, in every chart the same. Names
// are taken as they are: the caller makes them distinct.
std::vector<Figure> charts(const std::vector<RunData>& runs);

}  // namespace epipe::report
