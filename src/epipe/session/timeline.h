#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "epipe/base/trace.h"

// The timelines of a run's other processes, for the client that puts them beside its own.
namespace epipe::session {

inline constexpr std::size_t kParticipantEvents = 5'000;

nlohmann::json timeline_json(const Tracer& tracer);

// The events of a process that holds `worker`, with `offset` added to its times. Trusts nothing: what is no event of this worker or of a
// cut of the run, is beyond the bound, or lies before the start is left out.
std::vector<Tracer::Event> timeline_from_json(const nlohmann::json& events, int worker, std::size_t cuts, double offset);

}  // namespace epipe::session
