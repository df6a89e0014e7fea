#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "epipe/base/trace.h"

// The timelines of a run's other processes, for the client to merge with its own.
namespace epipe::session {

inline constexpr std::size_t kParticipantEvents = 5'000;

nlohmann::json timeline_json(const Tracer& tracer);

// The events of the process of `worker`, with `offset` added to its times. For untrusted JSON: skips anything that is not an event of this
// worker or of a cut of the run, exceeds the bound, or lies before the start.
std::vector<Tracer::Event> timeline_from_json(const nlohmann::json& events, int worker, std::size_t cuts, double offset);

}  // namespace epipe::session
