#pragma once

#include <string>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::experiment {

// A table of the folder experiments/.
struct File {
  std::string name;  // "tasks.csv"
  std::string text;
};

// Where the tables may be, in order of preference: share/epipe/experiments of the program's installation, a folder experiments/ beside the
// program, and the sources it was built from.
std::vector<std::string> table_folders();

// All tables, by name. The error says where they were searched for.
Result<std::vector<File>> read_files(const std::vector<std::string>& folders);

}  // namespace epipe::experiment
