#pragma once

#include <torch/types.h>

#include <cstdint>

namespace epipe::pipeline {

// Exchanges a worker's gradients with its replicas while a batch is trained.
//
//   begin | forwards and backwards ... ready ready ready | finish
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // Begins a batch.
  virtual void begin(std::uint64_t step) = 0;
  // This parameter's gradient for the batch is complete, or will stay undefined. Called once per parameter, in the middle of the last
  // backward, by a thread that must not wait.
  virtual void ready(const torch::Tensor& parameter) = 0;
  // Waits until the gradients are exchanged, and returns the bytes sent. Throws if the exchange failed.
  virtual std::uint64_t finish() = 0;
};

}  // namespace epipe::pipeline
