#pragma once

#include <cstdint>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// How weights of convolutions (4 dims) and of linear layers and embeddings (2 dims) are initialized. Scales start at 1.
struct Initialization {
  enum class Rule : std::uint8_t {
    kUniform,  // bound 1 / sqrt(fan in), as in PyTorch's own modules
    kFanOut,   // normal, variance 2 / fan out
    kNormal,   // normal, `deviation`
  };
  Rule convolution = Rule::kUniform;
  Rule linear = Rule::kUniform;
  double deviation = 0.02;
  bool random_bias = false;  // with kUniform: biases of linear layers as well, like PyTorch; otherwise biases start at 0
};

// Initializes every parameter of a layer from (seed, its full name).
void initialize(Layer& layer, std::uint64_t seed, const Initialization& how = {});

}  // namespace epipe::layer
