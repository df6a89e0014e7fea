#pragma once

#include <cstdint>

#include "epipe/session/checkpoint.h"

namespace epipe::session {

// The factor of the loss that keeps fp16 gradients from vanishing, by the rule of torch.cuda.amp.GradScaler: doubled after 2000 good steps
// in a row, halved by a step that found NaN or Inf and was skipped. Always a power of two. Every process of a run has one, and all see
// the same steps.
class LossScaler {
 public:
  static constexpr double kFirst = 65536;
  static constexpr std::int64_t kGrowAfter = 2000;
  // Below this the cause is not fp16's range: the network itself is not finite any more.
  static constexpr double kLeast = 1.0 / 65536;

  double scale() const { return scale_; }
  void update(bool skipped);

  // "loss_scale", "good_steps"
  NamedTensors state() const;
  void set_state(const NamedTensors& state);

 private:
  double scale_ = kFirst;
  std::int64_t good_steps_ = 0;  // since the last change of the scale
};

}  // namespace epipe::session
