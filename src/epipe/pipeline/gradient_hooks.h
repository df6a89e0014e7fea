#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

namespace epipe::pipeline {

// Says when autograd has added a parameter's gradient, in the middle of a backward.
class GradientHooks {
 public:
  using OnGradient = std::function<void(const torch::Tensor& parameter)>;

  // Parameters that want no gradient are left out.
  GradientHooks(const std::vector<torch::Tensor>& parameters, OnGradient on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // The next backward is the one that counts. Nothing is said of others.
  void arm();
  // After it: says so of the parameters it did not reach.
  void finish();

 private:
  struct Hook;
  struct State;
  std::shared_ptr<State> state_;  // shared with the hooks, which autograd owns and may keep
};

}  // namespace epipe::pipeline
