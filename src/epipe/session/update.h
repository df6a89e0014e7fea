#pragma once

namespace epipe::session {

// What the coordinator decided about the gradients of a step.
struct Update {
  double lr = 0;
  double scale = 1;   // of the gradients
  bool skip = false;  // they hold NaN or Inf somewhere: nothing changes but the loss scale
};

}  // namespace epipe::session
