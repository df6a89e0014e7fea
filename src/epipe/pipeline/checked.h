#pragma once

#include "epipe/pipeline/pipeline.h"

namespace epipe::pipeline {

// The configuration for a model with `layers` layers, with missing settings filled in. Throws std::invalid_argument if cuts, placement,
// codecs, devices or precision are inconsistent.
PipelineConfig checked(PipelineConfig config, std::size_t layers);

}  // namespace epipe::pipeline
