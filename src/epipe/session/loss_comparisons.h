#pragma once

#include <array>
#include <vector>

#include "epipe/pipeline/pipeline.h"
#include "epipe/session/audit.h"

// What coding at a cut adds to the loss of the same samples, seen at the last layer's outputs: z' with it, z without it.
//
//   difference  L(z') - L(z)                        what a model that is used with this coding loses, and chance: which way each error
//                                                   happens to push its sample
//   added       L(z') - L(z) - <dL/dz, z' - z>      without that push, which has no direction where predictions are calibrated. For cross
//                                                   entropy the KL divergence of the predictions with coding from those without, whatever
//                                                   the labels; for squared error (z' - z)^2. At least 0 for any convex loss.
//
// Both have the same expectation for errors that know nothing of the labels; the latter is known from far fewer samples.
namespace epipe::session {

// Takes the losses of an audit's micro-batches: a and b at the training's rates, then a and b again with one tensor's coding after the
// other taken out. One thread.
class LossComparisons {
 public:
  void take(const pipeline::AuditedLoss& loss);
  // As in AuditPartResult. Waits for the device.
  std::vector<std::vector<double>> losses() const;

 private:
  struct Before {
    layer::Tensors outputs;
    torch::Tensor sum;
  };
  std::array<Before, 2> before_;         // of a and b in the last pass
  std::vector<torch::Tensor> measured_;  // by micro-batch: the loss and what was added to it, per term, on the last stage's device
};

}  // namespace epipe::session
