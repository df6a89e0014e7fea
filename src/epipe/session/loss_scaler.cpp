#include "epipe/session/loss_scaler.h"

#include <limits>
#include <stdexcept>

namespace epipe::session {
namespace {

constexpr const char* kScale = "loss_scale";
constexpr const char* kGoodSteps = "good_steps";
constexpr double kGrowth = 2;
constexpr double kBackOff = 0.5;

}  // namespace

void LossScaler::update(bool skipped) {
  if (!skipped && ++good_steps_ < kGrowAfter) return;
  good_steps_ = 0;
  const double next = scale_ * (skipped ? kBackOff : kGrowth);
  if (next <= std::numeric_limits<float>::max()) scale_ = next;
}

NamedTensors LossScaler::state() const {
  return {{kScale, torch::full({}, scale_, torch::kFloat64)}, {kGoodSteps, torch::full({}, good_steps_, torch::kInt64)}};
}

void LossScaler::set_state(const NamedTensors& state) {
  const auto scale = state.find(kScale);
  const auto good_steps = state.find(kGoodSteps);
  if (scale == state.end() || good_steps == state.end()) throw std::runtime_error("the checkpoint holds no loss scale");
  scale_ = scale->second.item<double>();
  good_steps_ = good_steps->second.item<std::int64_t>();
}

}  // namespace epipe::session
