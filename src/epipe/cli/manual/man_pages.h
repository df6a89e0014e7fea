#pragma once

#include <string>
#include <vector>

#include "epipe/cli/manual/command_tree.h"

namespace epipe::cli::manual {

// One page of section 1, in roff with the macros of man(7).
struct ManPage {
  std::string name;  // epipe-codec-encode.1
  std::string text;
};

// `date` is shown at the foot of every page: YYYY-MM-DD.
ManPage man_page(const Command& command, const std::string& version, const std::string& date);

// Creates the folder and writes the pages of all commands into it. The date is SOURCE_DATE_EPOCH if set, for reproducible builds.
void write_man_pages(const Command& program, const std::string& version, const std::string& folder);

}  // namespace epipe::cli::manual
