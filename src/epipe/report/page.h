#pragma once

#include <string>
#include <vector>

#include "epipe/report/run_data.h"

namespace epipe::report {

// An element of the page that is redrawn on its own as a run progresses.
struct PagePart {
  std::string id;
  std::string html;
};

// Notes, summary, every chart, and tables with configurations, in this order.
std::vector<PagePart> page_parts(const std::vector<RunData>& runs);
// The page that gets changed parts from its server.
std::string live_page(const std::vector<RunData>& runs, const std::vector<PagePart>& parts);
// Runs whose folders have the same name get the user's path as their name; a folder given twice gets its position, too.
void make_names_distinct(std::vector<RunData>& runs);

// One HTML page about one or several runs, in the order given. It needs no other file and no network; without JavaScript only tooltips and
// switches are missing.
std::string page(std::vector<RunData> runs);

}  // namespace epipe::report
