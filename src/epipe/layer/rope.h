#pragma once

#include <torch/types.h>

#include <cstdint>

namespace epipe::layer {

// How rotary position embeddings (Su et al. 2021) rotate with the position.
struct RopeConfig {
  enum class Kind : std::uint8_t { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;                 // kLinear, kLlama3: stretches positions
  double low_freq_factor = 1;        // kLlama3: which wavelengths are stretched,
  double high_freq_factor = 4;       //   and which are left alone
  double original_positions = 8192;  // kLlama3: the model's positions before stretching

  bool operator==(const RopeConfig&) const = default;
};

// Rotates queries and keys by their positions; the two halves of a head's features are the coordinates. For one thread.
class Rope {
 public:
  Rope(const RopeConfig& config, std::int64_t head_dim);
  // x: [B, heads, T, D], with the first token at position `begin`.
  torch::Tensor forward(const torch::Tensor& x, std::int64_t begin);

 private:
  void prepare(std::int64_t length, torch::Device device);

  torch::Tensor frequencies_;  // [D / 2], radians per position
  torch::Tensor cos_;          // [positions, D], for the positions used so far
  torch::Tensor sin_;
};

}  // namespace epipe::layer
