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

// Writes the pages of all commands into the folder, which it makes. The date is that of SOURCE_DATE_EPOCH where it is set, as packages
// that are built alike every time want it.
void write_man_pages(const Command& program, const std::string& version, const std::string& folder);

}  // namespace epipe::cli::manual
