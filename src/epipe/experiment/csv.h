#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::experiment {

// A line by the names of its columns.
using Record = std::map<std::string, std::string>;

// Comma-separated values whose first line names the columns. Fields with commas or quotes are quoted, with quotes in them doubled. Every
// line must have as many fields as the first; `file` is its name in errors.
Result<std::vector<Record>> parse_csv(std::string_view text, std::string_view file);

}  // namespace epipe::experiment
