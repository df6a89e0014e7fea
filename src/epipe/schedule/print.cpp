#include "epipe/schedule/print.h"

#include <algorithm>
#include <iterator>

#include "epipe/schedule/simulate.h"

namespace epipe::schedule {
namespace {

Result<Timeline> slots(const Schedule& schedule) {
  EPIPE_TRY(check(schedule.placement));
  return simulate(schedule, slot_costs(schedule));
}

void append_row(std::string& out, const std::string& title, const std::vector<std::string>& cells, std::size_t width) {
  out += fmt::format("{:<10}", title);
  for (const std::string& cell : cells) out += fmt::format("{:<{}}", cell, width + 1);
  out.erase(out.find_last_not_of(' ') + 1);
  out += '\n';
}

}  // namespace

Costs slot_costs(const Schedule& schedule) {
  const bool splits = std::find(schedule.split.begin(), schedule.split.end(), true) != schedule.split.end();
  return slot_costs(schedule.placement.stages(), splits);
}

Result<std::string> to_grid(const Schedule& schedule) {
  const auto timeline = slots(schedule);
  if (!timeline) return timeline.error();
  const auto columns = static_cast<std::size_t>(timeline.value().makespan);
  std::vector<std::vector<std::string>> rows(schedule.per_worker.size(), std::vector<std::string>(columns, "."));
  std::vector<std::string> header;
  for (std::size_t slot = 0; slot < columns; ++slot) header.push_back(fmt::format("{}", slot));
  std::size_t width = header.back().size();
  for (std::size_t w = 0; w < rows.size(); ++w) {
    for (std::size_t k = 0; k < schedule.per_worker[w].size(); ++k) {
      const Action& a = schedule.per_worker[w][k];
      const Interval& time = timeline.value().per_worker[w][k];
      const auto cell = rows[w].begin() + static_cast<std::ptrdiff_t>(time.start);
      std::fill(cell, rows[w].begin() + static_cast<std::ptrdiff_t>(time.end), "==");
      *cell = fmt::format("{}{}.{}", letters(a.kind), a.micro_batch, a.stage);
      width = std::max(width, cell->size());
    }
  }
  std::string out;
  append_row(out, "slot", header, width);
  for (std::size_t w = 0; w < rows.size(); ++w) append_row(out, fmt::format("worker {}", w), rows[w], width);
  return out;
}

Result<std::string> to_csv(const Schedule& schedule) {
  const auto timeline = slots(schedule);
  if (!timeline) return timeline.error();
  std::string out = "worker,slot,kind,micro_batch,stage\n";
  for (std::size_t w = 0; w < schedule.per_worker.size(); ++w) {
    for (std::size_t k = 0; k < schedule.per_worker[w].size(); ++k) {
      const Action& a = schedule.per_worker[w][k];
      const auto slot = static_cast<long>(timeline.value().per_worker[w][k].start);
      fmt::format_to(std::back_inserter(out), "{},{},{},{},{}\n", w, slot, letters(a.kind), a.micro_batch, a.stage);
    }
  }
  return out;
}

}  // namespace epipe::schedule
