#include "epipe/pipeline/gradient_hooks.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

namespace epipe::pipeline {

using torch::autograd::variable_list;

struct GradientHooks::State {
  // Keeps the node that accumulates the gradient alive, and its hooks with it.
  struct Parameter {
    torch::Tensor tensor;
    decltype(torch::autograd::Edge::function) accumulator;  // a shared_ptr; PyTorch 2.15: an intrusive_ptr
    bool said = true;
  };

  void say(Parameter& parameter) {
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(parameter.said, true)) return;
    }
    on_gradient(parameter.tensor);
  }

  std::vector<Parameter> parameters;  // never grows once hooks exist
  OnGradient on_gradient;
  std::mutex mutex;  // guards `said`: autograd has a thread per device
};

struct GradientHooks::Hook final : torch::autograd::FunctionPostHook {
  Hook(std::weak_ptr<State> s, std::size_t i) : state(std::move(s)), index(i) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (const auto alive = state.lock()) alive->say(alive->parameters[index]);
    return outputs;
  }
  std::weak_ptr<State> state;  // hooks do not keep it alive
  std::size_t index;
};

GradientHooks::GradientHooks(const std::vector<torch::Tensor>& parameters, OnGradient on_gradient) : state_(std::make_shared<State>()) {
  state_->on_gradient = std::move(on_gradient);
  for (const auto& parameter : parameters) {
    if (parameter.requires_grad()) state_->parameters.push_back({parameter, torch::autograd::impl::grad_accumulator(parameter)});
  }
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    state_->parameters[i].accumulator->add_post_hook(std::make_unique<Hook>(state_, i));
  }
}

GradientHooks::~GradientHooks() = default;

void GradientHooks::arm() {
  const std::lock_guard lock(state_->mutex);
  for (auto& parameter : state_->parameters) parameter.said = false;
}

void GradientHooks::finish() {
  for (auto& parameter : state_->parameters) state_->say(parameter);
}

}  // namespace epipe::pipeline
