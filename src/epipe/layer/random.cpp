#include "epipe/layer/random.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "epipe/base/sha256.h"
#include "epipe/layer/cuda/dropout.h"
#include "epipe/layer/dropout_keys.h"
#include "epipe/layer/scramble.h"

namespace epipe::layer {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // values per thread at least

void check_samples(torch::IntArrayRef shape, const ForwardContext& at, std::string_view name) {
  TORCH_CHECK(!shape.empty() && static_cast<std::size_t>(shape[0]) == at.samples.size(), "dropout in ", std::string(name), " expects ",
              at.samples.size(), " samples in the first dim, got shape ", shape);
}

}  // namespace

std::vector<std::uint64_t> sample_keys(const ForwardContext& at, std::string_view name) {
  const std::uint64_t batch_key = mix(mix(key_of(at.seed, name), at.epoch), at.step);
  std::vector<std::uint64_t> keys;
  for (const std::int64_t sample : at.samples) keys.push_back(mix(batch_key, static_cast<std::uint64_t>(sample)));
  return keys;
}

std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  Bytes bytes;
  append(bytes, seed);
  const auto text = std::as_bytes(std::span(name));
  bytes.insert(bytes.end(), text.begin(), text.end());
  return load<std::uint64_t>(sha256(bytes), 0);
}

std::uint64_t mix(std::uint64_t key, std::uint64_t number) { return scramble(scramble(key + kGolden) ^ number); }

torch::Tensor dropout_mask(torch::IntArrayRef shape, double p, const ForwardContext& at, std::string_view name) {
  check_samples(shape, at, name);
  auto mask = torch::empty(shape);
  if (mask.numel() == 0) return mask;
  const auto values = mask.numel() / shape[0];
  const auto kept = static_cast<float>(1 / (1 - p));
  const auto threshold = static_cast<float>(p);
  const auto keys = sample_keys(at, name);
  auto* const out = mask.data_ptr<float>();
  at::parallel_for(0, mask.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t sample = i / values;
      const std::uint64_t key = keys[static_cast<std::size_t>(sample)];
      for (const auto stop = std::min(end, (sample + 1) * values); i < stop; ++i) {
        out[i] = unit(key, static_cast<std::uint64_t>(i - sample * values)) < threshold ? 0.0F : kept;
      }
    }
  });
  return mask;
}

torch::Tensor dropout(const torch::Tensor& x, double p, const ForwardContext& at, std::string_view name) {
  if (!at.training || p == 0) return x;
  if (!at.pipelined) return torch::dropout(x, p, true);
  if (x.is_cpu()) return x * dropout_mask(x.sizes(), p, at, name).to(x.scalar_type());
  check_samples(x.sizes(), at, name);
  const auto kept = static_cast<float>(1 / (1 - p));
  if (at.capturing) return cuda::dropout(x, at.keys->take(at, name), static_cast<float>(p), kept);
  return cuda::dropout(x, sample_keys(at, name), static_cast<float>(p), kept);
}

void fill_uniform(torch::Tensor& x, double bound, std::uint64_t key) {
  const torch::NoGradGuard no_grad;
  auto values = torch::empty(x.sizes());
  auto* out = values.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(bound) * (2 * unit(key, static_cast<std::uint64_t>(i)) - 1);
  });
  x.copy_(values);
}

void fill_normal(torch::Tensor& x, double deviation, std::uint64_t key) {
  const torch::NoGradGuard no_grad;
  auto values = torch::empty(x.sizes());
  auto* out = values.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // Box and Muller; 1 - u keeps the logarithm finite.
      const double u = 1 - static_cast<double>(unit(key, 2 * static_cast<std::uint64_t>(i)));
      const auto v = static_cast<double>(unit(key, 2 * static_cast<std::uint64_t>(i) + 1));
      out[i] = static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
    }
  });
  x.copy_(values);
}

}  // namespace epipe::layer
