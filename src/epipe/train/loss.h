#pragma once

#include "epipe/pipeline/pipeline.h"

namespace epipe::train {

// Of the first output, logits [B, classes], and the class of each sample. Counts the samples whose largest logit is their class.
pipeline::LossResult cross_entropy(const layer::Tensors& outputs, const torch::Tensor& targets);

}  // namespace epipe::train
