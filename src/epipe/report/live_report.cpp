#include "epipe/report/live_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace epipe::report {

LiveReport::LiveReport(std::vector<FollowedRun> runs) : runs_(std::move(runs)), shown_(runs_.size()) {
  std::vector<RunData> named(runs_.size());
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    named[r].name = runs_[r].data().name;
    named[r].folder = runs_[r].data().folder;
  }
  make_names_distinct(named);
  for (std::size_t r = 0; r < runs_.size(); ++r) runs_[r].data().name = named[r].name;
  draw();
}

bool LiveReport::refresh() {
  bool changed = false;
  for (FollowedRun& run : runs_) changed = run.refresh() || changed;
  if (changed) draw();
  return changed;
}

void LiveReport::draw() {
  for (std::size_t r = 0; r < runs_.size(); ++r) std::swap(shown_[r], runs_[r].data());  // the drawing takes them as one list
  std::vector<PagePart> parts = page_parts(shown_);
  std::string page = live_page(shown_, parts);
  for (std::size_t r = 0; r < runs_.size(); ++r) std::swap(shown_[r], runs_[r].data());
  const std::lock_guard lock(mutex_);
  ++version_;
  std::vector<Part> fresh;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const bool same = p < parts_.size() && parts_[p].part.id == parts[p].id && parts_[p].part.html == parts[p].html;
    fresh.push_back({std::move(parts[p]), same ? parts_[p].version : version_});
  }
  parts_ = std::move(fresh);
  page_ = std::move(page);
}

std::string LiveReport::page() const {
  const std::lock_guard lock(mutex_);
  return page_;
}

std::string LiveReport::events(std::uint64_t& seen) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Part& part : parts_) {
    if (part.version <= seen) continue;
    const nlohmann::json data = {{"id", part.part.id}, {"html", part.part.html}};
    text += fmt::format("event: part\ndata: {}\n\n", data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  seen = version_;
  return text;
}

}  // namespace epipe::report
