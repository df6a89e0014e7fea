#pragma once

#include "epipe/layer/batch.h"
#include "epipe/train/batches.h"

namespace epipe::train {

// The first samples of the training data as the model sees them, with their context, for inspecting an architecture.
struct FirstSamples {
  layer::Batch batch;
  layer::ForwardContext at;  // in evaluation mode
};

FirstSamples first_samples(const TrainConfig& config, const Batches& batches, std::int64_t count);

}  // namespace epipe::train
