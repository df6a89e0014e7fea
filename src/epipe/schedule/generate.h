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
  int queue_capacity;  // as queue_capacity() says
  int in_flight = 0;   // most micro-batches a stage may hold; 0: as the schedule itself limits them
};

enum class Placements : std::uint8_t { kAny, kChain };

struct Generator {
  std::string_view name;  // as --schedule takes it
  std::string_view help;
  Schedule (*generate)(const Request& request);
  int queue_capacity;  // frames per cut and direction that the queues between workers hold where nothing limits what is in flight
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

// Frames per cut and direction that the queues between workers must hold for its orders to run without a deadlock, and for none of the
// micro-batches in flight to wait for room.
int queue_capacity(const Generator& generator, int chunks, int in_flight);

// Every worker must be given the same `costs` and `in_flight`, which is 0 or the most micro-batches a stage may hold; more than `chunks`
// is `chunks`. The error of an unknown name lists the known ones.
Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks, const Costs& costs, int in_flight = 0);
Result<Schedule> generate(std::string_view name, const Placement& placement, int chunks);  // with slot_costs()

}  // namespace epipe::schedule
