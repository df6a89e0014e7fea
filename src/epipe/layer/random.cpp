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

// scramble() on int64 tensors: products wrap, shifts are those of unsigned numbers.
torch::Tensor shifted(const torch::Tensor& z, int bits) {
  return torch::bitwise_right_shift(z, bits).bitwise_and_((std::int64_t{1} << (64 - bits)) - 1);
}
torch::Tensor scramble(torch::Tensor z) {
  z = (z ^ shifted(z, 30)).mul_(static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL));
  z = (z ^ shifted(z, 27)).mul_(static_cast<std::int64_t>(0x94d049bb133111ebULL));
  return z ^ shifted(z, 31);
}

void check_samples(torch::IntArrayRef shape, const ForwardContext& at, std::string_view name) {
  TORCH_CHECK(!shape.empty() && static_cast<std::size_t>(shape[0]) == at.samples.size(), "dropout in ", std::string(name), " expects ",
              at.samples.size(), " samples in the first dim, got shape ", shape);
}

std::vector<std::uint64_t> sample_keys(const ForwardContext& at, std::string_view name) {
  const std::uint64_t batch_key = mix(mix(key_of(at.seed, name), at.epoch), at.step);
  std::vector<std::uint64_t> keys;
  for (const std::int64_t sample : at.samples) keys.push_back(mix(batch_key, static_cast<std::uint64_t>(sample)));
  return keys;
}

}  // namespace

std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(seed, hash);
}

std::uint64_t mix(std::uint64_t key, std::uint64_t number) { return scramble(scramble(key + kGolden) ^ number); }

torch::Tensor dropout_mask(torch::IntArrayRef shape, double p, const ForwardContext& at, std::string_view name) {
  check_samples(shape, at, name);
  auto mask = torch::empty(shape);
  const auto values = mask.numel() / std::max<std::int64_t>(1, shape[0]);
  const auto kept = static_cast<float>(1 / (1 - p));
  const auto threshold = static_cast<float>(p);
  float* out = mask.data_ptr<float>();
  for (const std::uint64_t key : sample_keys(at, name)) {
    for (std::int64_t e = 0; e < values; ++e) *out++ = unit(key, static_cast<std::uint64_t>(e)) < threshold ? 0.0F : kept;
  }
  return mask;
}

torch::Tensor dropout_mask_on(torch::Device device, torch::IntArrayRef shape, double p, const ForwardContext& at, std::string_view name) {
  check_samples(shape, at, name);
  std::vector<std::int64_t> keys;
  for (const std::uint64_t key : sample_keys(at, name)) keys.push_back(static_cast<std::int64_t>(key));
  std::int64_t values = 1;
  for (const std::int64_t dim : shape.slice(1)) values *= dim;
  const auto golden = static_cast<std::int64_t>(kGolden);
  const auto sequence = torch::arange(1, values + 1, torch::TensorOptions(device).dtype(torch::kInt64)).mul_(golden);
  const auto z = scramble(torch::tensor(keys, torch::kInt64).to(device).unsqueeze(1) + sequence);  // [samples, values]
  const auto number = shifted(z, 40).to(torch::kFloat32).mul_(0x1p-24F);
  return number.ge(static_cast<float>(p)).to(torch::kFloat32).mul_(static_cast<float>(1 / (1 - p))).view(shape);
}

torch::Tensor dropout(const torch::Tensor& x, double p, const ForwardContext& at, std::string_view name) {
  if (!at.training || p == 0) return x;
  const auto mask = x.is_cpu() ? dropout_mask(x.sizes(), p, at, name) : dropout_mask_on(x.device(), x.sizes(), p, at, name);
  return x * mask.to(x.scalar_type());
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
