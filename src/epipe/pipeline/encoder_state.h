#pragma once

#include <memory>
#include <vector>

#include "epipe/codec/codec.h"
#include "epipe/pipeline/cut.h"

namespace epipe::pipeline {

// The state of the local encoders at these cuts, by "cut/direction/part/name"; call between steps.
codec::State encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts);
// The state before anything of `step` was sent, if steps overlap.
codec::State encoder_state_before(const std::vector<std::unique_ptr<Cut>>& cuts, std::uint64_t step);
// Resets encoders that `state` does not name. Throws std::invalid_argument for a name that belongs to no cut.
void set_encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts, const codec::State& state);

}  // namespace epipe::pipeline
