#include "epipe/session/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace epipe::session {
namespace {

constexpr double kRounding = 1 + 1e-6;  // tolerance for sums that satisfy Cauchy's inequality
constexpr double kLargest = 1e200;      // so that their sums, and the roots of their products, are finite

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// The part of a gradient that another layer adds counts as a gradient of its own: the rest comes with another stage, after other
// micro-batches, and until then it would take the memory of the matrix for each of them.
Named taken_gradients(const GradientComparisons::Layers& layers) {
  Named taken;
  const auto take = [&taken](std::string name, torch::Tensor parameter) {
    taken.emplace_back(std::move(name), parameter.grad());
    parameter.mutable_grad() = torch::Tensor();
  };
  for (const auto& layer : layers) {
    for (const auto& item : layer->named_parameters()) {
      if (item.value().requires_grad()) take(layer->full_name(item.key()), item.value());
    }
  }
  for (const auto& layer : layers) {
    const auto late = layer->late_gradients();
    std::vector<torch::Tensor> rest;
    for (const auto& [name, parameter] : late) rest.push_back(std::exchange(parameter.mutable_grad(), torch::Tensor()));
    layer->finish_gradients();
    for (std::size_t i = 0; i < late.size(); ++i) {
      take(late[i].first, late[i].second);
      late[i].second.mutable_grad() = rest[i];
    }
  }
  return taken;
}

// Reuses the memory of `before`.
Named change_from(Named before, const Named& now) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    torch::Tensor& x = before[i].second;
    x = x.defined() && now[i].second.defined() ? x.sub_(now[i].second) : torch::Tensor();
  }
  return before;
}

double cross_bound(const AuditSums& sums) { return sums.square * kRounding; }

// `norm`: at most that of the gradients without the change; grows with it. A change may be larger than the gradient that it began with. The
// factor of 2 is for scales that follow the gradient, before an optimizer's first step.
void check(const AuditSums& sums, double& norm) {
  const bool norms = std::isfinite(sums.square) && sums.square >= 0 && sums.square <= kLargest;
  norm += std::sqrt(sums.square);
  const double along = 2 * std::sqrt(sums.square) * norm * kRounding;
  if (norms && std::abs(sums.cross) <= cross_bound(sums) && std::abs(sums.along) <= along) return;
  throw std::invalid_argument(
      fmt::format("no gradients have the sums {}, {} and {}, with a norm of at most {}", sums.cross, sums.square, sums.along, norm));
}

}  // namespace

bool is_rate(double rate) { return rate == 0 || (rate >= kLeastRate && rate <= kMostRate); }

void check_rates(const pipeline::Rates& rates) {
  for (const pipeline::CutRates& cut : rates) {
    for (const double rate : {cut.forward, cut.backward}) {
      if (is_rate(rate)) continue;
      throw std::invalid_argument(fmt::format("expected a rate from {} to {} bits per value, got {}", kLeastRate, kMostRate, rate));
    }
  }
}

int most_at_once(const pipeline::PipelineConfig& config) {
  const auto is_open = [](const pipeline::CutCodecs& codecs) { return codecs.forward == "auto" || codecs.backward == "auto"; };
  const bool open = std::any_of(config.codecs.begin(), config.codecs.end(), is_open);
  return open ? std::max(config.chunks, pipeline::kAuditMicroBatches) : config.chunks;
}

AuditSums& AuditSums::operator+=(const AuditSums& other) {
  cross += other.cross;
  square += other.square;
  along += other.along;
  return *this;
}

void GradientComparisons::take(std::uint32_t micro_batch, int stage, const Layers& layers) {
  const torch::NoGradGuard no_grad;
  OfStage& own = stages_.at(static_cast<std::size_t>(stage));
  const std::size_t part = micro_batch % 2;
  const Gradients before = std::exchange(own.gradients[part], taken_gradients(layers));
  if (micro_batch < 2) {
    if (part == 1) own.sums.push_back(compare(stage, own.gradients[0], own.gradients[1]));
  } else if (part == 0) {
    own.change_of_a = change_from(before, own.gradients[0]);
  } else {
    own.sums.push_back(compare(stage, std::exchange(own.change_of_a, {}), change_from(before, own.gradients[1])));
  }
}

// In float64, parameter by parameter in the model's order.
torch::Tensor GradientComparisons::compare(int stage, const Gradients& a, const Gradients& b) const {
  const OfStage& own = stages_[static_cast<std::size_t>(stage)];
  torch::Tensor sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto& [name, g_a] = own.gradients[0][i];
    const torch::Tensor& g_b = own.gradients[1][i].second;
    if (!a[i].second.defined() || !b[i].second.defined() || !g_a.defined() || !g_b.defined()) continue;
    const torch::Tensor scale = scale_(stage, name, g_a);
    const auto in_steps = [&](const torch::Tensor& x) {
      const auto wide = x.to(torch::kFloat64);
      return (scale.defined() ? wide * scale : wide).flatten();
    };
    const auto x_a = in_steps(a[i].second);
    const auto x_b = in_steps(b[i].second);
    const auto of_parameter =
        torch::stack({x_a.dot(x_b), (x_a.dot(x_a) + x_b.dot(x_b)) / 2, (x_a.dot(in_steps(g_b)) + x_b.dot(in_steps(g_a))) / 2});
    sum = sum.defined() ? sum + of_parameter : of_parameter;
  }
  return sum;
}

std::vector<std::vector<double>> GradientComparisons::sums(std::size_t comparisons) const {
  std::vector<std::vector<double>> all(comparisons, std::vector<double>(kAuditNumbers * stages_.size()));
  for (std::size_t j = 0; j < stages_.size(); ++j) {
    for (std::size_t c = 0; c < std::min(comparisons, stages_[j].sums.size()); ++c) {
      if (!stages_[j].sums[c].defined()) continue;  // nothing is trained here
      const auto numbers = stages_[j].sums[c].cpu();
      for (std::size_t n = 0; n < kAuditNumbers; ++n) {
        all[c][kAuditNumbers * j + n] = numbers[static_cast<std::int64_t>(n)].item<double>();
      }
    }
  }
  return all;
}

std::vector<std::vector<AuditSums>> read_sums(const std::vector<std::vector<double>>& numbers, const std::vector<bool>& own) {
  std::vector<std::vector<AuditSums>> all;
  std::vector<double> norms(own.size());  // of the gradient and of all changes so far
  for (const auto& of_comparison : numbers) {
    if (of_comparison.size() != kAuditNumbers * own.size()) throw std::invalid_argument("it has sums of another pipeline");
    auto& sums = all.emplace_back(own.size());
    for (std::size_t j = 0; j < own.size(); ++j) {
      if (!own[j]) continue;
      const double* const n = of_comparison.data() + kAuditNumbers * j;
      sums[j] = {n[0], n[1], n[2]};
      check(sums[j], norms[j]);
    }
  }
  return all;
}

std::vector<PassLosses> read_losses(const std::vector<std::vector<double>>& numbers, std::size_t passes) {
  if (numbers.size() != passes) {
    throw std::invalid_argument(fmt::format("expected the losses of {} passes, got {}", passes, numbers.size()));
  }
  std::vector<PassLosses> all;
  for (const std::vector<double>& n : numbers) {
    const auto fits = [](double x) { return std::abs(x) <= kLargest; };
    if (n.size() != kPassNumbers || !std::all_of(n.begin(), n.end(), fits)) {
      throw std::invalid_argument(fmt::format("no pass has the losses {}", fmt::join(n, ", ")));
    }
    all.push_back({{n[0], n[1]}, {n[2], n[3]}});
  }
  return all;
}

}  // namespace epipe::session
