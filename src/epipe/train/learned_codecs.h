#pragma once

#include "epipe/layer/batch.h"
#include "epipe/model/model.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe::train {

// Takes the learned part (conv:, linear:) out of every cut's codecs and inserts its layers around the cut instead; the cuts move along.
// Shapes come from a forward of `sample` (one sample). Throws std::invalid_argument where a codec does not fit.
void insert_learned_codecs(model::Model& model, pipeline::PipelineConfig& config, const layer::Batch& sample);

}  // namespace epipe::train
