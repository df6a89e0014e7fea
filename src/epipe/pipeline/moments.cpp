#include "epipe/pipeline/moments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace epipe::pipeline {
namespace {

constexpr std::int64_t kMostChannels = 64;
constexpr double kSmallest = 1e-5;  // eigenvalue of the channels' correlations, relative to the largest, that still counts

// [N, C, HW], one value after the other, so that sums do not depend on strides.
torch::Tensor maps_of(const torch::Tensor& x) {
  return x.detach().to(torch::kFloat32).contiguous().view({x.size(0), x.size(1), x.size(2) * x.size(3)});
}

// [C, K]: products within a sample in float32, summed over the samples in float64.
torch::Tensor products(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::bmm(a, b.transpose(1, 2)).to(torch::kFloat64).sum(0);
}

// [C, 1]
torch::Tensor sums(const torch::Tensor& a) { return a.sum(2).to(torch::kFloat64).sum(0).unsqueeze(1); }

torch::Tensor moments_of(const torch::Tensor& gradient, const torch::Tensor& x) {
  return torch::cat({products(gradient, x), sums(gradient)}, 1);
}

// [C + 1, C + 1]: the same of x and 1 with themselves.
torch::Tensor gram_of(const torch::Tensor& x) {
  const auto ones = sums(x);
  const auto count = torch::full({1, 1}, static_cast<double>(x.size(0) * x.size(2)), ones.options());
  return torch::cat({torch::cat({products(x, x), ones}, 1), torch::cat({ones.t(), count}, 1)}, 0);
}

}  // namespace

bool has_moments(const torch::Tensor& x) { return x.is_floating_point() && x.dim() == 4 && x.numel() > 0 && x.size(1) <= kMostChannels; }

torch::Tensor moments(const torch::Tensor& gradient, const torch::Tensor& x) {
  return moments_of(maps_of(gradient), maps_of(x)).to(torch::kFloat32);
}

torch::Tensor with_moments(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& wanted) {
  const std::int64_t channels = x.size(1);
  if (wanted.sizes() != torch::IntArrayRef({channels, channels + 1})) {
    throw std::runtime_error(fmt::format("expected moments of {} channels, [{}, {}], got [{}]", channels, channels, channels + 1,
                                         fmt::join(wanted.sizes(), ", ")));
  }
  const torch::NoGradGuard no_grad;
  const auto own = maps_of(gradient);
  const auto maps = maps_of(x);
  // C + 1 unknowns per channel: solved on the host.
  const auto missing = wanted.to(torch::kCPU, torch::kFloat64) - moments_of(own, maps).to(torch::kCPU);
  const auto gram = gram_of(maps).to(torch::kCPU);
  if (!torch::isfinite(gram).all().item<bool>()) return gradient;
  const auto size = gram.diagonal().sqrt();
  const auto unit = torch::where(size > 0, 1 / size, torch::zeros_like(size));
  const auto correlations = gram * unit.unsqueeze(0) * unit.unsqueeze(1);
  const auto factors = torch::mm(missing * unit, torch::linalg_pinv(correlations, kSmallest, /*hermitian=*/true)) * unit;  // [C, C + 1]
  const auto there = factors.to(own.device(), torch::kFloat32);
  const auto added = torch::matmul(there.narrow(1, 0, channels), maps) + there.narrow(1, channels, 1);
  return (own + added).view(gradient.sizes()).to(gradient.scalar_type());
}

}  // namespace epipe::pipeline
