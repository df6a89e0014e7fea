#pragma once

#include <string>

#include "epipe/report/run_data.h"

namespace epipe::report {

// Two HTML tables of a run, closed until one opens them: everything that its steps say of its workers and of its cuts, one row per metric.
// Base's declarations give order, unit and explanation; a metric they do not know is shown as a plain number.
std::string metric_tables(const RunData& run);

}  // namespace epipe::report
