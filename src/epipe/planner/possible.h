#pragma once

#include <string>
#include <vector>

#include "epipe/planner/inputs.h"

// What the search may choose from, as constraints and bounds leave it.
namespace epipe::planner {

// The ring 0,1,...,0 or the chain 0,1,... of all workers.
std::vector<int> default_place(const Inputs& inputs);

// Powers of two and three quarters of them, 1 2 3 4 6 8 12 16 ..., as long as micro-batches are large enough.
std::vector<int> possible_chunks(const Inputs& inputs);

// Those that can run on the placement.
std::vector<std::string> possible_schedules(const Inputs& inputs, const schedule::Placement& placement);

// Most micro-batches that a stage may hold: as the schedule limits them (0), and more of a schedule that limits them.
std::vector<int> possible_in_flight(const Inputs& inputs, const std::string& schedule, int chunks);

// Of one cut and direction, as indices of Inputs::codecs.
std::vector<std::size_t> possible_codecs(const Inputs& inputs, std::size_t cut, schedule::Direction direction);

// Layers in front of which a cut may be, ascending. Where so many cuts could be chosen in too many ways, neighbours are represented by
// the one that carries least.
std::vector<std::size_t> possible_positions(const Inputs& inputs, std::size_t cuts);

}  // namespace epipe::planner
