#pragma once

#include <span>
#include <string_view>

namespace epipe::experiment {

// A file of the folder experiments/, as it was when the program was built.
struct File {
  std::string_view name;  // "tasks.csv"
  std::string_view text;
};

std::span<const File> files();

}  // namespace epipe::experiment
