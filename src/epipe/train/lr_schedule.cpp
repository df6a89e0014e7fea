#include "epipe/train/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace epipe::train {

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) return base * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double done = std::clamp(static_cast<double>(step - warmup_steps) / length, 0.0, 1.0);
  switch (kind) {
    case Kind::kConstant: return base;
    case Kind::kCosine: return base * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Kind::kLinear: return base * (1 - done);
    case Kind::kPolynomial: return base * std::pow(1 - done, power);
  }
  return base;
}

LrSchedule::Kind parse_lr_schedule(const std::string& name) {
  if (name == "constant") return LrSchedule::Kind::kConstant;
  if (name == "cosine") return LrSchedule::Kind::kCosine;
  if (name == "linear") return LrSchedule::Kind::kLinear;
  if (name == "polynomial") return LrSchedule::Kind::kPolynomial;
  throw std::invalid_argument(
      fmt::format("unknown learning rate schedule \"{}\"; known are constant, cosine, linear and polynomial", name));
}

}  // namespace epipe::train
