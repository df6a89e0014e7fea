#pragma once

namespace epipe::session {

// The coordinator's decision about the gradients of a step.
struct Update {
  double lr = 0;
  double scale = 1;   // of the gradients
  bool skip = false;  // some are NaN or Inf: only the loss scale changes
};

}  // namespace epipe::session
