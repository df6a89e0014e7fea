#include "epipe/codec/reflection_control.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "epipe/codec/spectra.h"

namespace epipe::codec {
namespace {

constexpr const char* kReflectionState = "reflections";
constexpr std::uint64_t kRenew = 32;           // calls: weights that train turn the axes
constexpr double kWorthIt = 0.95;              // of the cost without
constexpr double kMostShare = 0.35;            // of the bits may go into reflections; the trial knows their price
constexpr std::size_t kFewestReflections = 4;  // tried; then twice as many each time
constexpr double kRoundingSkew = 1.0001;       // of float32 reflections

}  // namespace

ReflectionPlan::ReflectionPlan(Reflections own, const kernels::Kernels& kernels) : reflections(std::move(own)) {
  write_reflections(reflections, kernels, front);
  aside = {front.size(), kRoundingSkew, true};
}

Aside ReflectionPlan::aside_of_spectra() const {
  constexpr std::size_t kDim = 8;  // of the frame's header, which has one more than rows have
  return {aside.bytes + kSpectraHead + kDim, aside.skew, aside.by_axes, true};
}

std::shared_ptr<const ReflectionPlan> ReflectionControl::plan_for(const Axes& axes, std::size_t count, const TensorSpec& tensor,
                                                                  const RateControl& control) const {
  double kept = 0;
  for (std::size_t k = 0; k < count; ++k) kept += axes.energies[k];
  const double rest = std::max(1 - kept / static_cast<double>(axes.features), 1e-4);  // of the energy
  const std::size_t rows = tensor.values() / axes.features;
  return std::make_shared<ReflectionPlan>(reflections_to(axes, count, control.expected_step(std::sqrt(rest)), rows), *options_.kernels);
}

// More and more of them, as long as that pays.
std::shared_ptr<const ReflectionPlan> ReflectionControl::best_plan(const TensorSpec& tensor, const RateControl& control,
                                                                   const Trial& trial) const {
  const std::size_t most = Reflections::most(tensor);
  const Axes axes = leading_axes(trial.rows(), tensor.dims[2], most, *options_.kernels, options_.pool);
  std::shared_ptr<const ReflectionPlan> best;
  double least = kWorthIt * trial.plain();
  for (std::size_t count = std::min(kFewestReflections, most); count <= most; count *= 2) {
    const auto plan = plan_for(axes, count, tensor, control);
    if (!control.affords(tensor, plan->front.size(), kMostShare)) break;
    const double cost = trial.by_axes(plan);
    if (!(cost < least)) {
      if (best != nullptr) break;
      continue;
    }
    least = cost;
    best = plan;
  }
  return best;
}

std::shared_ptr<const ReflectionPlan> ReflectionControl::choose(const TensorSpec& tensor, RateControl& control, const Trial& trial,
                                                                bool frozen) {
  Memory memory = memory_.value_or(Memory{});
  const std::size_t features = tensor.dims[2];
  const bool known = memory.calls > 0 && memory.features == features;
  const bool usable = memory.plan == nullptr || memory.plan->reflections.count() <= Reflections::most(tensor);
  if (!known || !usable || (RateControl::is_time_to_choose(memory.calls) && !frozen)) {
    const bool before = memory.plan != nullptr;
    memory.plan = best_plan(tensor, control, trial);
    memory.features = features;
    if (!frozen && (memory.plan != nullptr) != before) control.forget();
  } else if (memory.plan != nullptr && memory.calls % kRenew == 0 && !frozen) {
    const std::size_t count = memory.plan->reflections.count();
    memory.plan = plan_for(leading_axes(trial.rows(), features, count, *options_.kernels, options_.pool), count, tensor, control);
  }
  ++memory.calls;
  if (!frozen) memory_ = memory;
  return memory.plan;
}

// calls, features, count; where there are reflections, their shifts and levels.
void ReflectionControl::add_state(State& state) const {
  if (!memory_) return;
  std::vector<double> numbers = {static_cast<double>(memory_->calls), static_cast<double>(memory_->features), 0};
  if (memory_->plan) {
    const Reflections& own = memory_->plan->reflections;
    numbers[2] = static_cast<double>(own.count());
    numbers.insert(numbers.end(), own.shifts().begin(), own.shifts().end());
    numbers.insert(numbers.end(), own.levels().begin(), own.levels().end());
  }
  state.emplace(kReflectionState, torch::tensor(numbers, torch::kFloat64));
}

void ReflectionControl::set_state(const State& state) {
  memory_.reset();
  const auto found = state.find(kReflectionState);
  if (found == state.end() || found->second.numel() < 3) return;
  const auto numbers = found->second.to(torch::kFloat64).contiguous();
  const std::span<const double> n(numbers.data_ptr<double>(), static_cast<std::size_t>(numbers.numel()));
  const auto whole = [](double number, double most) { return number >= 0 && number <= most && number == std::trunc(number); };
  if (!whole(n[0], 0x1p53) || !whole(n[1], Reflections::kMostFeatures) || !whole(n[2], Reflections::kMost)) return;
  const auto features = static_cast<std::size_t>(n[1]);
  const auto count = static_cast<std::size_t>(n[2]);
  if (n.size() != 3 + count + count * features || (count > 0 && features < Reflections::kFewestFeatures)) return;
  Memory memory{nullptr, features, static_cast<std::uint64_t>(n[0])};
  if (count > 0) {
    std::vector<std::uint8_t> shifts;
    std::vector<std::int32_t> levels;
    for (std::size_t k = 0; k < count; ++k) {
      if (!whole(n[3 + k], Reflections::kMostShift)) return;
      shifts.push_back(static_cast<std::uint8_t>(n[3 + k]));
    }
    for (std::size_t i = 0; i < count * features; ++i) {
      const double level = n[3 + count + i];
      const bool free = i % features > i / features;
      if (!whole(std::abs(level), free ? std::ldexp(1.0, shifts[i / features]) : 0)) return;
      levels.push_back(static_cast<std::int32_t>(level));
    }
    memory.plan = std::make_shared<ReflectionPlan>(Reflections(std::move(levels), std::move(shifts), features), *options_.kernels);
  }
  memory_ = std::move(memory);
}

}  // namespace epipe::codec
