#include "epipe/codec/klt_control.h"

#include <algorithm>
#include <cmath>

namespace epipe::codec {
namespace {

constexpr const char* kKltState = "klt";
constexpr std::uint64_t kRefresh = 32;  // calls: weights that train turn the axes
constexpr double kWorth = 0.8;          // of the cost without: the sample may err by a few percent
constexpr double kShare = 0.05;         // of the bits may go into a basis

}  // namespace

std::shared_ptr<const ChannelPlan> KltControl::choose(const torch::Tensor& x, RateControl& control, const Trial& trial, bool frozen) {
  const TensorSpec tensor = spec_of(x);
  if (!wanted_ || !ChannelBasis::fits(tensor) || !control.affords(tensor, basis_bytes(tensor.dims[1]), kShare)) return nullptr;
  Memory memory = memory_.value_or(Memory{});
  const bool known = memory.calls > 0 && memory.channels == x.size(1);
  const auto new_plan = [&] { return std::make_shared<ChannelPlan>(ChannelBasis::of_moments(channel_moments(x), tensor.dims[1])); };
  if (!known || (RateControl::is_time_to_choose(memory.calls) && !frozen)) {
    const bool before = memory.plan != nullptr;
    memory.plan = new_plan();
    if (!(trial.klt(*memory.plan) < kWorth * trial.plain())) memory.plan.reset();
    memory.channels = x.size(1);
    if (!frozen && (memory.plan != nullptr) != before) control.forget();
  } else if (memory.plan != nullptr && memory.calls % kRefresh == 0 && !frozen) {
    memory.plan = new_plan();
  }
  ++memory.calls;
  if (!frozen) memory_ = memory;
  return memory.plan;
}

// calls, channels, then the entries where there is a basis.
void KltControl::add_state(State& state) const {
  if (!memory_) return;
  std::vector<double> numbers = {static_cast<double>(memory_->calls), static_cast<double>(memory_->channels)};
  if (memory_->plan) {
    const auto entries = memory_->plan->basis.entries();
    numbers.insert(numbers.end(), entries.begin(), entries.end());
  }
  state.emplace(kKltState, torch::tensor(numbers, torch::kFloat64));
}

void KltControl::set_state(const State& state) {
  memory_.reset();
  const auto found = state.find(kKltState);
  if (found == state.end() || found->second.numel() < 2) return;
  const auto numbers = found->second.to(torch::kFloat64).contiguous();
  const double* const n = numbers.data_ptr<double>();
  if (!(n[0] >= 0 && n[0] < 0x1p53)) return;
  const auto channels = static_cast<std::size_t>(std::clamp(n[1], 0.0, static_cast<double>(ChannelBasis::kMostChannels)));
  Memory memory{{}, static_cast<std::int64_t>(channels), static_cast<std::uint64_t>(n[0])};
  const auto entries = static_cast<std::size_t>(numbers.numel()) - 2;
  if (entries != 0 && entries == channels * channels) {
    std::vector<std::int8_t> all;
    for (std::size_t i = 0; i < entries; ++i) all.push_back(static_cast<std::int8_t>(std::clamp(n[2 + i], -127.0, 127.0)));
    memory.plan = std::make_shared<ChannelPlan>(ChannelBasis(std::move(all), channels));
    const auto& back = memory.plan->from_channels;
    const bool is_basis = std::all_of(back.begin(), back.end(), [](float entry) { return std::isfinite(entry); });
    if (!is_basis || !std::isfinite(memory.plan->aside.skew)) return;
  }
  memory_ = std::move(memory);
}

}  // namespace epipe::codec
