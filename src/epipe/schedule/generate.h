#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/schedule/costs.h"
#include "epipe/schedule/schedule.h"

namespace epipe::schedule {

// What a generator is asked for: a placement it takes, 1 to kMaxChunks micro-batches, costs that fit.
struct Request {
  const Placement& placement;
  int chunks;
  const Costs& costs;  // decide what overlaps with what, not the result of the training
  int queue_capacity;  // of the generator
};

enum class Placements : std::uint8_t { kAny, kChain };

struct Generator {
  std::string_view name;  // as --schedule takes it
  std::string_view help;
  Schedule (*generate)(const Request& request);
  int queue_capacity;  // frames per cut and direction that the queues between workers must hold for its orders to run without a deadlock
  Placements placements;
  bool splits_backward;  // into Bi and Bw, on some stages
};

// The known schedules. To add one: a function in a file of its own, its line in generators.h, and its line in the table of generate.cpp.
std::span<const Generator> generators();
Result<Generator> find_generator(std::string_view name);
std::vector<std::string> schedule_names();
std::string schedule_help();  // a line of text that names and explains them all

// Whether it can run on this placement.
Result<void> check(const Generator& generator, const Placement& placement);

// Every worker must be given the same `costs`. The error of an unknown name lists the known ones.
Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks, const Costs& costs);
Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks);  // with slot_costs()

}  // namespace epipe::schedule
