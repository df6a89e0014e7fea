#pragma once

#include <torch/types.h>

#include <cstdint>

namespace epipe::layer {

// How rotary position embeddings (Su et al. 2021) turn with the position.
struct RopeConfig {
  enum class Kind : std::uint8_t { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;                 // kLinear, kLlama3: of positions
  double low_freq_factor = 1;        // kLlama3: which wavelengths are stretched,
  double high_freq_factor = 4;       //   and which are left alone
  double original_positions = 8192;  // kLlama3: of the model before it was stretched

  bool operator==(const RopeConfig&) const = default;
};

// Turns queries and keys by their positions; halves of a head's features are the two coordinates. One thread uses it.
class Rope {
 public:
  Rope(const RopeConfig& config, std::int64_t head_dim);
  // [B, heads, T, D], whose first token is at position `begin`.
  torch::Tensor forward(const torch::Tensor& x, std::int64_t begin);

 private:
  void prepare(std::int64_t length, torch::Device device);

  torch::Tensor frequencies_;  // [D / 2], radians per position
  torch::Tensor cos_;          // [positions, D], of those that were asked for so far
  torch::Tensor sin_;
};

}  // namespace epipe::layer
