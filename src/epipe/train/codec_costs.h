#pragma once

#include <string>
#include <vector>

#include "epipe/model/costs.h"
#include "epipe/planner/inputs.h"
#include "epipe/train/batches.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"

// What codecs cost on the tensors of a model, for the planner.
namespace epipe::train {

// Activations and gradients at the end of every layer but the last, of as many of the first samples as memory allows, at most a batch. The
// gradients are of the run's own loss.
std::vector<model::BoundaryTensors> boundaries_of(const Registry& registry, const model::Architecture& architecture,
                                                  const TrainConfig& config, const Batches& batches,
                                                  const std::vector<planner::Layer>& layers);

// Measures a codec on these tensors, at layers spread over the model; the others cost as the nearest of them does. Throws
// std::invalid_argument for an invalid spec or a learned codec.
planner::CodecCosts codec_costs(const std::string& spec, const std::vector<model::BoundaryTensors>& boundaries, int threads);

}  // namespace epipe::train
