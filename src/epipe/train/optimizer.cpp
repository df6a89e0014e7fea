#include "epipe/train/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace epipe::train {
namespace {

constexpr const char* kSteps = "steps";

}  // namespace

OptimizerConfig::Kind parse_optimizer(const std::string& name) {
  if (name == "sgd") return OptimizerConfig::Kind::kSgd;
  if (name == "adam") return OptimizerConfig::Kind::kAdam;
  if (name == "adamw") return OptimizerConfig::Kind::kAdamW;
  throw std::invalid_argument(fmt::format("unknown optimizer \"{}\"; known are sgd, adam and adamw", name));
}

std::string to_string(OptimizerConfig::Kind kind) {
  switch (kind) {
    case OptimizerConfig::Kind::kSgd: return "sgd";
    case OptimizerConfig::Kind::kAdam: return "adam";
    case OptimizerConfig::Kind::kAdamW: return "adamw";
  }
  return "";
}

Optimizer::Optimizer(const OptimizerConfig& config, NamedParameters parameters) : config_(config), parameters_(std::move(parameters)) {
  if (config_.nesterov && config_.momentum <= 0) throw std::invalid_argument("nesterov needs a momentum above 0");
}

void Optimizer::step(double learning_rate, double scale) {
  const torch::NoGradGuard no_grad;
  ++steps_;
  for (auto& [name, parameter] : parameters_) {
    if (!parameter.grad().defined()) continue;
    if (scale != 1) parameter.mutable_grad().mul_(scale);
    config_.kind == OptimizerConfig::Kind::kSgd ? sgd(name, parameter, learning_rate) : adam(name, parameter, learning_rate);
  }
}

torch::Tensor& Optimizer::slot(const std::string& name, const torch::Tensor& like) {
  torch::Tensor& found = slots_[name];
  if (!found.defined()) found = torch::zeros_like(like);
  return found;
}

void Optimizer::sgd(const std::string& name, torch::Tensor& parameter, double learning_rate) {
  torch::Tensor direction = parameter.grad();
  if (config_.weight_decay != 0) direction = direction.add(parameter, config_.weight_decay);
  if (config_.momentum != 0) {
    torch::Tensor& velocity = slot(name + "/momentum", parameter);  // 0 at first: the first velocity is the gradient, as in torch.optim
    velocity.mul_(config_.momentum).add_(direction);
    direction = config_.nesterov ? direction.add(velocity, config_.momentum) : velocity;
  }
  parameter.add_(direction, -learning_rate);
}

void Optimizer::adam(const std::string& name, torch::Tensor& parameter, double learning_rate) {
  torch::Tensor gradient = parameter.grad();
  if (config_.kind == OptimizerConfig::Kind::kAdamW) {
    parameter.mul_(1 - learning_rate * config_.weight_decay);
  } else if (config_.weight_decay != 0) {
    gradient = gradient.add(parameter, config_.weight_decay);
  }
  torch::Tensor& first = slot(name + "/first", parameter);
  torch::Tensor& second = slot(name + "/second", parameter);
  first.mul_(config_.beta1).add_(gradient, 1 - config_.beta1);
  second.mul_(config_.beta2).addcmul_(gradient, gradient, 1 - config_.beta2);
  const auto steps = static_cast<double>(steps_);
  const double first_bias = 1 - std::pow(config_.beta1, steps);
  const double second_bias = 1 - std::pow(config_.beta2, steps);
  const auto scale = (second.sqrt() / std::sqrt(second_bias)).add_(config_.eps);
  parameter.addcdiv_(first, scale, -learning_rate / first_bias);
}

std::map<std::string, torch::Tensor> Optimizer::state() const {
  std::map<std::string, torch::Tensor> all;
  for (const auto& [name, tensor] : slots_) all.emplace(name, tensor.clone());
  all.emplace(kSteps, torch::full({}, steps_, torch::kInt64));
  return all;
}

void Optimizer::set_state(const std::map<std::string, torch::Tensor>& state) {
  slots_.clear();
  steps_ = 0;
  for (const auto& [name, tensor] : state) {
    if (name == kSteps) {
      steps_ = tensor.item<std::int64_t>();
      continue;
    }
    for (const auto& [parameter_name, parameter] : parameters_) {
      if (name.starts_with(parameter_name + "/"))
        slots_[name] = tensor.to(parameter.device(), parameter.scalar_type(), false, /*copy=*/true);
    }
  }
}

}  // namespace epipe::train
