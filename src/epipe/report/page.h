#pragma once

#include <string>
#include <vector>

#include "epipe/report/run_data.h"

namespace epipe::report {

// What is drawn anew by itself when a run goes on: an element of the page.
struct PagePart {
  std::string id;
  std::string html;
};

// Notes, summary, every chart, and tables with configurations, in this order.
std::vector<PagePart> page_parts(const std::vector<RunData>& runs);
// The page that asks its server for the parts that change.
std::string live_page(const std::vector<RunData>& runs, const std::vector<PagePart>& parts);
// Runs whose folders end alike are told apart by the path the user gave, and the same folder given twice by its place.
void make_names_distinct(std::vector<RunData>& runs);

// One HTML page about one or several runs, in the order given. It needs no other file and no network; without a script only the
// tooltips and the switches are missing.
std::string page(std::vector<RunData> runs);

}  // namespace epipe::report
