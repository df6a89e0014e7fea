#include "epipe/planner/possible.h"

#include <algorithm>
#include <cmath>

#include "epipe/schedule/generate.h"

namespace epipe::planner {
namespace {

using schedule::Direction;

constexpr int kMostChunks = 64;          // what a server takes in flight unless told otherwise
constexpr double kMostCutSets = 40'000;  // two cuts of 280 layers, or three of 63

double combinations(std::size_t positions, std::size_t cuts) {
  double count = 1;
  for (std::size_t i = 0; i < cuts; ++i) count *= static_cast<double>(positions - i) / static_cast<double>(i + 1);
  return count;
}

}  // namespace

std::vector<int> default_place(const Inputs& inputs) {
  std::vector<int> place;
  for (std::size_t w = 0; w < inputs.workers.size(); ++w) place.push_back(static_cast<int>(w));
  if (inputs.ring && place.size() > 1) place.push_back(0);
  return place;
}

std::vector<int> possible_chunks(const Inputs& inputs) {
  if (inputs.constraints.chunks) return {*inputs.constraints.chunks};
  const double most = std::clamp(std::floor(inputs.batch / std::max(1, inputs.constraints.least_samples)), 1.0, double{kMostChunks});
  std::vector<int> chunks;
  for (int m = 1; m <= static_cast<int>(most); m *= 2) {
    if (m >= 4) chunks.push_back(m / 4 * 3);
    chunks.push_back(m);
  }
  return chunks;
}

std::vector<std::string> possible_schedules(const Inputs& inputs, const schedule::Placement& placement) {
  std::vector<std::string> names;
  for (const schedule::Generator& generator : schedule::generators()) {
    if (inputs.constraints.schedule && *inputs.constraints.schedule != generator.name) continue;
    if (check(generator, placement).ok()) names.emplace_back(generator.name);
  }
  return names;
}

std::vector<int> possible_in_flight(const Inputs& inputs, const std::string& schedule, int chunks) {
  if (inputs.constraints.in_flight) return {*inputs.constraints.in_flight};
  std::vector<int> numbers = {0};
  if (schedule != "1f1b") return numbers;  // gpipe has all in flight, zb-h1 is for chains without distances
  for (int k = 4; k < chunks; k *= 2) numbers.push_back(k);
  if (chunks > 3) numbers.push_back(chunks);
  return numbers;
}

std::vector<std::size_t> possible_codecs(const Inputs& inputs, std::size_t cut, Direction direction) {
  const Constraints& only = inputs.constraints;
  for (const auto& at : only.codec_at) {
    if (at.cut == cut && at.direction == direction) return {at.codec};
  }
  const auto& named = direction == Direction::kForward ? only.forward_codecs : only.backward_codecs;
  if (!named.empty()) return named;
  std::vector<std::size_t> all(inputs.codecs.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

std::vector<std::size_t> possible_positions(const Inputs& inputs, std::size_t cuts) {
  const std::size_t all = inputs.layers.size() - 1;
  std::size_t most = all;
  while (most > cuts && combinations(most, cuts) > kMostCutSets) --most;
  std::vector<std::size_t> positions;
  for (std::size_t part = 0; part < most; ++part) {
    std::size_t narrowest = 1 + part * all / most;
    for (std::size_t i = narrowest; i < 1 + (part + 1) * all / most; ++i) {
      if (inputs.layers[i - 1].values < inputs.layers[narrowest - 1].values) narrowest = i;
    }
    positions.push_back(narrowest);
  }
  return positions;
}

}  // namespace epipe::planner
