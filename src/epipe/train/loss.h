#pragma once

#include "epipe/data/data_spec.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe::train {

// Cross entropy of classes, or the squared error of values (the mean over the values of a sample). Its predictions are the outputs.
pipeline::Loss make_loss(const data::DataSpec& data);

}  // namespace epipe::train
