#include "epipe/cli/bench/tensors.h"

#include <ATen/CPUGeneratorImpl.h>

#include "epipe/codec/codec.h"
#include "epipe/wire/frame.h"

namespace epipe::cli {
namespace {

constexpr std::uint64_t kSeed = 2022;

NamedTensor named(const std::string& kind, const torch::Tensor& x) { return {kind + wire::to_string(codec::spec_of(x)), x}; }

}  // namespace

NamedTensor relu6_maps(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  const auto generator = at::detail::createCPUGenerator(kSeed);
  constexpr std::int64_t kWaves = 3;
  // A few separable waves per map, plus noise.
  const auto wave = [&](std::int64_t length) {
    const auto position = torch::linspace(0, 3, length).view({1, 1, 1, length});
    const auto frequency = at::rand({n, c, kWaves, 1}, generator) * 4;
    const auto phase = at::rand({n, c, kWaves, 1}, generator) * 6.2832;
    return torch::cos(position * frequency + phase);
  };
  const auto smooth = torch::matmul(wave(h).transpose(-1, -2), wave(w));
  const auto level = at::randn({n, c, 1, 1}, generator);
  const auto noise = at::randn({n, c, h, w}, generator) * 0.15;
  return named("relu6", torch::clamp(smooth * 1.5 + level + noise + 0.3, 0, 6).contiguous());
}

NamedTensor gaussian_text(std::int64_t n, std::int64_t t, std::int64_t f) {
  return named("gauss", at::randn({n, t, f}, at::detail::createCPUGenerator(kSeed)));
}

NamedTensor heavy_gradients(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  const auto generator = at::detail::createCPUGenerator(kSeed);
  const auto normal = at::randn({n, c, h, w}, generator);
  const auto chi = at::randn({3, n, c, h, w}, generator).square().mean(0).sqrt();
  return named("grad", (normal / chi * 1e-4).contiguous());
}

}  // namespace epipe::cli
