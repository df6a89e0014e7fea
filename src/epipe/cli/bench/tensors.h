#pragma once

#include <torch/types.h>

#include <string>

namespace epipe::cli {

// Generated tensors for benchmarks, the same on every machine and in every run.
struct NamedTensor {
  std::string name;
  torch::Tensor x;
};

// Feature maps after ReLU6: smooth over the map, about two fifths zeros, a few values at 6. [n, c, h, w]
NamedTensor relu6_maps(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);
// Standard normal values, like the output of a layer norm. [n, t, f]
NamedTensor gaussian_text(std::int64_t n, std::int64_t t, std::int64_t f);
// Gradients: mostly small, a few values a thousand times larger (Student's t with 3 degrees of freedom). [n, c, h, w]
NamedTensor heavy_gradients(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);

}  // namespace epipe::cli
