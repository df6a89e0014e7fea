#pragma once

#include <array>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epipe/schedule/generate.h"

namespace epipe::schedule {

struct NamedPlacement {
  std::string name;
  Placement placement;
};

// Each shape at most once for n stages: where two coincide (n = 1 is a chain and one worker) the first is kept.
inline std::vector<NamedPlacement> placements(int n) {
  std::vector<int> chain(static_cast<std::size_t>(n));
  std::iota(chain.begin(), chain.end(), 0);
  auto ring = chain;
  ring.back() = 0;
  auto round_robin = chain;
  for (int& worker : round_robin) worker %= 2;
  auto pairs = chain;
  for (int& worker : pairs) worker /= 2;
  const std::vector<int> one(chain.size(), 0);

  std::vector<NamedPlacement> all;
  for (const auto& [name, workers] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"chain", chain}, {"one worker", one}, {"ring", ring}, {"round robin", round_robin}, {"pairs", pairs}}) {
    bool seen = false;
    for (const auto& other : all) seen = seen || other.placement.worker_of == workers;
    if (!seen) all.push_back({name, {workers}});
  }
  return all;
}

// The schedules that take any placement.
inline constexpr std::array<std::string_view, 2> kBoth = {"gpipe", "1f1b"};

// The registered schedules that take this placement.
inline std::vector<std::string_view> schedules_for(const Placement& placement) {
  std::vector<std::string_view> names;
  for (const Generator& generator : generators()) {
    if (check(generator, placement)) names.push_back(generator.name);
  }
  return names;
}

inline constexpr int kStages = 6;
inline constexpr int kChunks = 12;

// Calls check(name of the placement, placement, m) for everything up to 6 stages and 12 micro-batches.
template <typename Check>
void for_all_sizes(Check&& check) {
  for (int n = 1; n <= kStages; ++n) {
    for (const auto& [name, placement] : placements(n)) {
      for (int m = 1; m <= kChunks; ++m) check(name, placement, m);
    }
  }
}

inline Schedule make(std::string_view name, const Placement& placement, int chunks) {
  auto schedule = generate(name, placement, chunks);
  if (!schedule) throw std::invalid_argument(schedule.error().text());
  return std::move(schedule).value();
}

inline Schedule make(std::string_view name, std::string_view placement, int chunks) {
  return make(name, parse_placement(placement).value(), chunks);
}

}  // namespace epipe::schedule
