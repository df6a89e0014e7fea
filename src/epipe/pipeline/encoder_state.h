#pragma once

#include <memory>
#include <vector>

#include "epipe/codec/codec.h"
#include "epipe/pipeline/cut.h"

namespace epipe::pipeline {

// The state of the encoders at these cuts that are here, by "cut/direction/part/name"; between steps.
codec::State encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts);
// The same as it was before anything of `step` was sent, where steps overlap.
codec::State encoder_state_before(const std::vector<std::unique_ptr<Cut>>& cuts, std::uint64_t step);
// Encoders that `state` does not name start anew. Throws std::invalid_argument for a name that is of no cut.
void set_encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts, const codec::State& state);

}  // namespace epipe::pipeline
