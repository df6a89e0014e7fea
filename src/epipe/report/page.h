#pragma once

#include <string>
#include <vector>

#include "epipe/report/run_data.h"

namespace epipe::report {

// One HTML page about one or several runs, in the order given. It needs no other file and no network; without a script only the
// tooltips and the switches are missing.
std::string page(std::vector<RunData> runs);

}  // namespace epipe::report
