#pragma once

#include <functional>

#include "epipe/model/architecture.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// Takes the learned part (conv:, linear:) out of every cut's codecs and inserts its layers around the cut instead; the cuts move along.
// Shapes at the cuts come from a forward of `look`, a separate architecture of the same model; empty: of this one. Throws
// std::invalid_argument if a codec does not fit.
void insert_learned_codecs(model::Architecture& architecture, Plan& plan, const std::function<model::Architecture()>& look = {});

}  // namespace epipe::train
