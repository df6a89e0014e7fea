#pragma once

#include <string>

#include "epipe/data/dataset.h"
#include "epipe/model/architecture.h"
#include "epipe/train/config.h"
#include "epipe/train/plan.h"

// --reuse-activations: the client's side, and whether it is possible.
namespace epipe::train {

// Checks that other settings allow it, which needs neither model nor data; otherwise throws std::invalid_argument. Nothing without
// --reuse-activations.
void check_reuse_settings(const TrainConfig& config);

// Also checks that a sample crosses the first cut with the same activation in every epoch; otherwise throws std::invalid_argument with the
// reason. It checks which layers are trained, and tries the first samples in several epochs. `architecture` must be made only for this
// check, so that no layer of a run changes.
void require_constant_front(const TrainConfig& config, const Plan& plan, const model::Architecture& architecture,
                            const data::Dataset& data);

// The secret key in the run's folder for tags of samples (pipeline/sample_tag.h); created if there is none. Throws std::runtime_error.
std::string reuse_key(const std::string& run_dir);

}  // namespace epipe::train
