#pragma once

#include <torch/types.h>

#include <cstdint>

namespace epipe::pipeline {

// What happens between a worker's gradients and those of its replicas while a batch is trained.
//
//   begin | forwards and backwards ... ready ready ready | finish
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // A batch begins.
  virtual void begin(std::uint64_t step) = 0;
  // The batch's gradient of this parameter is complete, or will stay undefined. Once per parameter, in the middle of the last
  // backward, by a thread that must not wait.
  virtual void ready(const torch::Tensor& parameter) = 0;
  // Waits until the gradients are exchanged, and returns the bytes that were sent for it. Throws what went wrong.
  virtual std::uint64_t finish() = 0;
};

}  // namespace epipe::pipeline
