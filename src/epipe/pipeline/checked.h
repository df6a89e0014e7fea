#pragma once

#include "epipe/pipeline/pipeline.h"

namespace epipe::pipeline {

// The configuration for a model of so many layers, with what was left out filled in. Throws std::invalid_argument when cuts, placement,
// codecs, devices or precision do not fit.
PipelineConfig checked(PipelineConfig config, std::size_t layers);

}  // namespace epipe::pipeline
