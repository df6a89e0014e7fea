#pragma once

#include <cstdint>
#include <string>

namespace epipe::train {

// The learning rate of every step. It rises linearly from above 0 during warm-up, then follows the curve down to 0 after the last step.
struct LrSchedule {
  enum class Kind : std::uint8_t { kConstant, kCosine, kLinear, kPolynomial };
  Kind kind = Kind::kConstant;
  double base = 0.01;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  double power = 2;  // polynomial

  double at(std::int64_t step) const;  // step counts from 0
};

// "constant", "cosine", "linear", "polynomial"; otherwise throws std::invalid_argument.
LrSchedule::Kind parse_lr_schedule(const std::string& name);

}  // namespace epipe::train
