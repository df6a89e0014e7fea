#include "epipe/schedule/in_flight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "epipe/schedule/simulate.h"

namespace epipe::schedule {
namespace {

constexpr double kGoodEnough = 1.01;  // of the best makespan

// Every number up to 64, then steps of a sixteenth: at most 64 + 16 log2(m / 64) of them.
std::vector<int> candidates(int chunks) {
  std::vector<int> all;
  for (int k = 1; k < chunks; k += std::max(1, k / 16 - 3)) all.push_back(k);
  all.push_back(chunks);
  return all;
}

bool fits(const std::vector<int>& live, const std::vector<int>& most) {
  for (std::size_t w = 0; w < most.size(); ++w) {
    if (live[w] > most[w]) return false;
  }
  return true;
}

Result<InFlight> price(const InFlightQuestion& question, int in_flight) {
  auto made = generate(question.schedule, question.placement, question.chunks, question.costs, in_flight);
  if (!made) return made.error();
  auto timeline =
      question.resources != nullptr ? simulate(made.value(), question.costs, *question.resources) : simulate(made.value(), question.costs);
  if (!timeline) return timeline.error();
  return InFlight{in_flight, timeline.value().makespan, std::move(timeline.value().peak_live_of_worker)};
}

}  // namespace

std::vector<int> live_limits(const Request& request) {
  const int n = request.placement.stages();
  std::vector<int> limits;
  for (int j = 0; j < n; ++j) limits.push_back(std::min(request.chunks, n - j));
  if (request.in_flight == 0) return limits;
  bool last_worker = true;  // no link lies between this stage and the last one
  for (int j = n - 1; j >= 0; --j) {
    if (j + 1 < n && request.placement.crosses(j)) last_worker = false;
    int& limit = limits[static_cast<std::size_t>(j)];
    limit = last_worker ? std::min(limit, request.in_flight) : request.in_flight;
  }
  return limits;
}

Result<InFlight> choose_in_flight(const InFlightQuestion& question) {
  if (!question.most_live.empty() && question.most_live.size() != static_cast<std::size_t>(question.placement.workers())) {
    return Error{ErrorCode::kBadSchedule, fmt::format("expected a limit of live micro-batches for each of {} workers, got {}",
                                                      question.placement.workers(), question.most_live.size())};
  }
  if (question.chunks < 1 || question.chunks > kMaxChunks) {
    return Error{ErrorCode::kBadSchedule,
                 fmt::format("the number of micro-batches (chunks) is from 1 to {}, got {}", kMaxChunks, question.chunks)};
  }
  std::vector<InFlight> all;
  double best = std::numeric_limits<double>::infinity();
  for (const int k : candidates(question.chunks)) {
    auto priced = price(question, k);
    if (!priced) return priced.error();
    if (!fits(priced.value().live_of_worker, question.most_live)) continue;
    best = std::min(best, priced.value().makespan);
    all.push_back(std::move(priced).value());
  }
  if (all.empty()) {
    return Error{ErrorCode::kBadSchedule, fmt::format("one micro-batch at a time holds more than the {} live micro-batches by worker that "
                                                      "the memory has room for; use more chunks or --recompute",
                                                      fmt::join(question.most_live, ","))};
  }
  return *std::find_if(all.begin(), all.end(), [&](const InFlight& one) { return one.makespan <= kGoodEnough * best; });
}

}  // namespace epipe::schedule
