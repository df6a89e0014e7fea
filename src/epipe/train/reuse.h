#pragma once

#include <string>

#include "epipe/data/dataset.h"
#include "epipe/model/architecture.h"
#include "epipe/train/config.h"
#include "epipe/train/plan.h"

// --reuse-activations: what the client needs for it, and whether it makes sense.
namespace epipe::train {

// Whether a sample crosses the first cut with the same activation in every epoch. Throws std::invalid_argument with the reason where it
// does not: it looks at what is trained, and tries the first samples in several epochs. Changes no layer of a run: the architecture is made
// for a look.
void require_constant_front(const TrainConfig& config, const Plan& plan, const model::Architecture& architecture,
                            const data::Dataset& data);

// The secret of the run's folder that names what a sample's activations are made of; made where there is none. Throws std::runtime_error.
std::string reuse_key(const std::string& run_dir);

}  // namespace epipe::train
