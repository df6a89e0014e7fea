#pragma once

#include <string_view>

#include "epipe/report/run_data.h"

namespace epipe::report {

struct ReadTrace {
  Trace trace;
  bool complete = true;  // false: the text ends early, and the trace holds the part before
};

// Reads a Chrome trace: {"traceEvents": [...]} or the bare list. `file` is its name in errors.
Result<ReadTrace> parse_trace(std::string_view text, std::string_view file);

}  // namespace epipe::report
