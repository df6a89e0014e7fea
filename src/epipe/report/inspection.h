#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/report/figure.h"
#include "epipe/report/run_data.h"

namespace epipe::report {

// Reads the text of an inspect.json, as `epipe inspect` writes it; `file` is its name in errors.
Result<std::vector<InspectedCut>> parse_inspection(std::string_view text, std::string_view file);

// Histograms of the tensors that cross the cuts, a table of their moments, and the error of every codec; none without an inspection.
std::vector<Figure> inspection_charts(const std::vector<RunData>& runs);

}  // namespace epipe::report
