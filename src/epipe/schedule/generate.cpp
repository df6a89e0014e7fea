#include "epipe/schedule/generate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "epipe/schedule/generators.h"

namespace epipe::schedule {
namespace {

constexpr std::array kGenerators = {
    Generator{"gpipe", "every forward, then every backward", gpipe, 2, Placements::kAny, false},
    Generator{"1f1b", "a backward as soon as the pipeline is full", one_f_one_b, 1, Placements::kAny, false},
    Generator{"zb-h1", "1f1b with the gradients of weights in its idle time; for chains, where a step has few micro-batches per stage",
              zb_h1, 1, Placements::kChain, true},
};

Error bad_request(std::string message) { return {ErrorCode::kBadSchedule, std::move(message)}; }

bool is_chain(const Placement& placement) {
  for (int j = 0; j < placement.stages(); ++j) {
    if (placement.worker_of[static_cast<std::size_t>(j)] != j) return false;
  }
  return true;
}

}  // namespace

std::span<const Generator> generators() { return kGenerators; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) names.emplace_back(generator.name);
  return names;
}

std::string schedule_help() {
  std::vector<std::string> lines;
  for (const Generator& generator : kGenerators) lines.push_back(fmt::format("{}: {}", generator.name, generator.help));
  return fmt::format("{}", fmt::join(lines, "; "));
}

Result<Generator> find_generator(std::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return generator;
  }
  return bad_request(fmt::format("unknown schedule \"{}\"; known are {}", name, fmt::join(schedule_names(), ", ")));
}

Result<void> check(const Generator& generator, const Placement& placement) {
  EPIPE_TRY(check(placement));
  if (generator.placements == Placements::kAny || is_chain(placement)) return {};
  return bad_request(
      fmt::format("the schedule {} is for chains, where stage j is on worker j, as in 0,1,2; the placement is {}; use 1f1b or gpipe",
                  generator.name, to_string(placement)));
}

int queue_capacity(const Generator& generator, int chunks, int in_flight) {
  return std::max(generator.queue_capacity, std::min(chunks, in_flight));
}

Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks, const Costs& costs, int in_flight) {
  const auto generator = find_generator(name);
  if (!generator) return generator.error();
  EPIPE_TRY(check(generator.value(), placement));
  EPIPE_TRY(check(costs, placement.stages()));
  if (chunks < 1 || chunks > kMaxChunks) {
    return bad_request(fmt::format("the number of micro-batches (chunks) is from 1 to {}, got {}", kMaxChunks, chunks));
  }
  if (in_flight < 0 || in_flight > kMaxChunks) {
    return bad_request(
        fmt::format("the micro-batches in flight are from 1 to {}, or 0 for the schedule's own limits, got {}", kMaxChunks, in_flight));
  }
  const int capacity = queue_capacity(generator.value(), chunks, in_flight);
  return generator.value().generate({placement, chunks, costs, capacity, std::min(in_flight, chunks)});
}

Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks) {
  const auto generator = find_generator(name);
  if (!generator) return generator.error();
  EPIPE_TRY(check(placement));
  return generate(name, placement, chunks, slot_costs(placement.stages(), generator.value().splits_backward));
}

}  // namespace epipe::schedule
