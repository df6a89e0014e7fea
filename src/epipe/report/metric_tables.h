#pragma once

#include <string>

#include "epipe/report/run_data.h"

namespace epipe::report {

// Two collapsed HTML tables of a run: all metrics of its workers and of its cuts, one row per metric. The declarations in base/ give order,
// unit and help; an undeclared metric is shown as a plain number.
std::string metric_tables(const RunData& run);

}  // namespace epipe::report
