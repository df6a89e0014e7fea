#include "epipe/layer/random.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

namespace epipe::layer {
namespace {

// splitmix64's finaliser: every bit of the input reaches every bit of the output.
std::uint64_t scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr std::int64_t kGrain = 1 << 15;  // values per thread at least
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// Number `index` of the sequence of a key, in [0, 1) with 24 bits: exact in float32.
float unit(std::uint64_t key, std::uint64_t index) { return static_cast<float>(scramble(key + (index + 1) * kGolden) >> 40) * 0x1p-24F; }

}  // namespace

std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(seed, hash);
}

std::uint64_t mix(std::uint64_t key, std::uint64_t number) { return scramble(scramble(key + kGolden) ^ number); }

torch::Tensor dropout_mask(torch::IntArrayRef shape, double p, const ForwardContext& at, std::string_view name) {
  TORCH_CHECK(!shape.empty() && static_cast<std::size_t>(shape[0]) == at.samples.size(), "dropout in ", std::string(name), " expects ",
              at.samples.size(), " samples in the first dim, got shape ", shape);
  auto mask = torch::empty(shape);
  const auto values = mask.numel() / std::max<std::int64_t>(1, shape[0]);
  const auto kept = static_cast<float>(1 / (1 - p));
  const auto threshold = static_cast<float>(p);
  float* out = mask.data_ptr<float>();
  const std::uint64_t batch_key = mix(mix(key_of(at.seed, name), at.epoch), at.step);
  for (const std::int64_t sample : at.samples) {
    const std::uint64_t key = mix(batch_key, static_cast<std::uint64_t>(sample));
    for (std::int64_t e = 0; e < values; ++e) *out++ = unit(key, static_cast<std::uint64_t>(e)) < threshold ? 0.0F : kept;
  }
  return mask;
}

torch::Tensor dropout(const torch::Tensor& x, double p, const ForwardContext& at, std::string_view name) {
  if (!at.training || p == 0) return x;
  return x * dropout_mask(x.sizes(), p, at, name).to(x.device(), x.scalar_type());
}

void fill_uniform(torch::Tensor& x, double bound, std::uint64_t key) {
  const torch::NoGradGuard no_grad;
  auto values = torch::empty(x.sizes());
  float* out = values.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(bound) * (2 * unit(key, static_cast<std::uint64_t>(i)) - 1);
  });
  x.copy_(values);
}

void fill_normal(torch::Tensor& x, double deviation, std::uint64_t key) {
  const torch::NoGradGuard no_grad;
  auto values = torch::empty(x.sizes());
  float* out = values.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // Box and Muller; 1 - u keeps the logarithm finite.
      const double u = 1 - static_cast<double>(unit(key, 2 * static_cast<std::uint64_t>(i)));
      const double v = static_cast<double>(unit(key, 2 * static_cast<std::uint64_t>(i) + 1));
      out[i] = static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
    }
  });
  x.copy_(values);
}

}  // namespace epipe::layer
