#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

namespace epipe::pipeline {

// Reports when autograd has accumulated a parameter's gradient, in the middle of a backward.
class GradientHooks {
 public:
  using OnGradient = std::function<void(const torch::Tensor& parameter)>;

  // Skips parameters that do not require gradients.
  GradientHooks(const std::vector<torch::Tensor>& parameters, OnGradient on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // Reports the next backward; others are not reported.
  void arm();
  // Call after it: reports the parameters it did not reach.
  void finish();

 private:
  struct Hook;
  struct State;
  std::shared_ptr<State> state_;  // shared with the hooks, which autograd owns and may keep
};

}  // namespace epipe::pipeline
