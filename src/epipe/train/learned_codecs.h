#pragma once

#include "epipe/model/model.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// Takes the learned part (conv:, linear:) out of every cut's codecs and inserts its layers around the cut instead; the cuts move along.
// `seed` is of their first values. Throws std::invalid_argument where a codec does not fit.
void insert_learned_codecs(model::Model& model, Plan& plan, std::uint64_t seed);

}  // namespace epipe::train
