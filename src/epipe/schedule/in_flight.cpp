#include "epipe/schedule/in_flight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "epipe/schedule/simulate.h"

namespace epipe::schedule {
namespace {

constexpr double kGoodEnough = 1.01;       // of the best makespan
constexpr double kGoodUnderOthers = 1.03;  // of the best one under other costs

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

// One number in flight, and the makespans of its order: under the costs, then under the others.
struct Priced {
  InFlight result;
  std::vector<double> makespans;
};

Result<Timeline> simulate_under(const InFlightQuestion& question, const Schedule& order, const Costs& costs) {
  return question.resources != nullptr ? simulate(order, costs, *question.resources) : simulate(order, costs);
}

Result<Priced> price(const InFlightQuestion& question, int in_flight) {
  const auto made = generate(question.schedule, question.placement, question.chunks, question.costs, in_flight);
  if (!made) return made.error();
  auto timeline = simulate_under(question, made.value(), question.costs);
  if (!timeline) return timeline.error();
  const double makespan = timeline.value().makespan;
  Priced priced{{in_flight, makespan, std::move(timeline.value().peak_live_of_worker)}, {makespan}};
  for (const Costs& other : question.others) {
    const auto under_other = simulate_under(question, made.value(), other);
    if (!under_other) return under_other.error();
    priced.makespans.push_back(under_other.value().makespan);
  }
  return priced;
}

// By how much, as a factor, it misses what is good enough, where it does so most.
double miss(const Priced& one, const std::vector<double>& best) {
  double most = 0;
  for (std::size_t c = 0; c < best.size(); ++c) {
    const double good = best[c] * (c == 0 ? kGoodEnough : kGoodUnderOthers);
    most = std::max(most, one.makespans[c] <= good ? 1 : one.makespans[c] / good);
  }
  return most;
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
  std::vector<Priced> all;
  std::vector<double> best(1 + question.others.size(), std::numeric_limits<double>::infinity());
  for (const int k : candidates(question.chunks)) {
    auto priced = price(question, k);
    if (!priced) return priced.error();
    if (!fits(priced.value().result.live_of_worker, question.most_live)) continue;
    for (std::size_t c = 0; c < best.size(); ++c) best[c] = std::min(best[c], priced.value().makespans[c]);
    all.push_back(std::move(priced).value());
  }
  if (all.empty()) {
    return Error{ErrorCode::kBadSchedule, fmt::format("one micro-batch at a time holds more than the {} live micro-batches by worker that "
                                                      "the memory has room for; use more chunks or --recompute",
                                                      fmt::join(question.most_live, ","))};
  }
  return std::min_element(all.begin(), all.end(), [&](const Priced& a, const Priced& b) { return miss(a, best) < miss(b, best); })->result;
}

}  // namespace epipe::schedule
