#pragma once

#include "epipe/pipeline/pipeline.h"

namespace epipe::train {

// Cross entropy of every next token. `outputs`: hidden states [B, T, F] and the head's matrix [V, F], as output by a decoder's head for a
// loss; targets int64 [B, T]: the tokens themselves, or layer::kNoTarget where nothing is predicted. Logits are computed for some tokens at
// a time, in the type of the hidden states; softmax and sums are float32.
pipeline::LossResult next_token_loss(const layer::Tensors& outputs, const torch::Tensor& targets);

}  // namespace epipe::train
