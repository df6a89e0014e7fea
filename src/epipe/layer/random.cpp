#include "epipe/layer/random.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

DropoutInParts dropout_in_parts(std::int64_t rows, std::int64_t values, double p, torch::Device device, const ForwardContext& at,
                                std::string_view name) {
  if (at.capturing) return {at.keys->take(at, name), p, rows, values};
  const auto keys = sample_keys(at, name);
  auto on_host = torch::empty({static_cast<std::int64_t>(keys.size())}, torch::kInt64);
  std::memcpy(on_host.data_ptr(), keys.data(), keys.size() * sizeof(keys[0]));
  return {on_host.to(device), p, rows, values};
}

// Number e + k of a key is number k of the key plus e times the distance of two numbers (unit()), so a row has a key of its own.
torch::Tensor DropoutInParts::drop(const torch::Tensor& x, std::int64_t first) const {
  TORCH_CHECK(x.size(0) == keys.size(0), "dropout expects ", keys.size(0), " samples in the first dim, got shape ", x.sizes());
  const auto heads = torch::arange(x.size(1), keys.options()).unsqueeze(1);
  const auto own_rows = torch::arange(first, first + x.size(2), keys.options());
  const auto elements = ((heads * rows + own_rows) * values).view({1, -1});  // before each row, in its sample
  const auto row_keys = (keys.unsqueeze(1) + elements * static_cast<std::int64_t>(kGolden)).view({-1});
  const auto kept = static_cast<float>(1 / (1 - p));
  const auto threshold = static_cast<float>(p);
  if (!x.is_cpu()) return cuda::dropout(x, row_keys, threshold, kept);
  const auto from = x.contiguous();
  auto to = torch::empty_like(from);
  const std::int64_t count = x.size(3);
  const auto* const key = row_keys.data_ptr<std::int64_t>();
  const auto* const in = from.data_ptr<float>();
  auto* const out = to.data_ptr<float>();
  at::parallel_for(0, row_keys.numel(), std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, count)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       for (std::int64_t k = 0; k < count; ++k) {
                         const bool dropped = unit(static_cast<std::uint64_t>(key[row]), static_cast<std::uint64_t>(k)) < threshold;
                         out[row * count + k] = in[row * count + k] * (dropped ? 0.0F : kept);
                       }
                     }
                   });
  return to;
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
