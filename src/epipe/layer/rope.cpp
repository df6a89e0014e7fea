#include "epipe/layer/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace epipe::layer {
namespace {

// Stretches long wavelengths by the factor, keeps short ones and blends the rest, as in Llama 3.1.
torch::Tensor llama3_frequencies(const torch::Tensor& plain, const RopeConfig& c) {
  const auto wavelength = 2 * std::numbers::pi / plain;
  const auto share = (c.original_positions / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  const auto blended = (1 - share) * plain / c.factor + share * plain;
  const auto is_long = wavelength > c.original_positions / c.low_freq_factor;
  const auto is_short = wavelength < c.original_positions / c.high_freq_factor;
  return torch::where(is_long, plain / c.factor, torch::where(is_short, plain, blended));
}

// In float32, with Hugging Face's sequence of operations: at long positions the rounding shows.
torch::Tensor frequencies(const RopeConfig& c, std::int64_t head_dim) {
  const auto exponent = torch::arange(0, head_dim, 2, torch::kInt64).to(torch::kFloat32) / static_cast<double>(head_dim);
  const auto plain = 1.0 / torch::pow(c.theta, exponent);
  switch (c.kind) {
    case RopeConfig::Kind::kDefault: return plain;
    case RopeConfig::Kind::kLinear: return plain / c.factor;
    case RopeConfig::Kind::kLlama3: return llama3_frequencies(plain, c);
  }
  return plain;
}

}  // namespace

Rope::Rope(const RopeConfig& config, std::int64_t head_dim) : frequencies_(frequencies(config, head_dim)) {}

void Rope::prepare(std::int64_t length, torch::Device device) {
  if (cos_.defined() && cos_.device() == device && cos_.size(0) >= length) return;
  const torch::NoGradGuard no_grad;
  const auto positions = torch::arange(length, torch::kInt64).to(torch::kFloat32);
  const auto half = torch::outer(positions, frequencies_);
  const auto angles = torch::cat({half, half}, -1);
  cos_ = angles.cos().to(device);
  sin_ = angles.sin().to(device);
}

torch::Tensor Rope::forward(const torch::Tensor& x, std::int64_t begin) {
  const std::int64_t length = x.size(2);
  prepare(begin + length, x.device());
  const auto cos = cos_.narrow(0, begin, length).to(x.scalar_type());
  const auto sin = sin_.narrow(0, begin, length).to(x.scalar_type());
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

}  // namespace epipe::layer
