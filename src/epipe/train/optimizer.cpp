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
  for (const Group& group : groups()) {
    if (scale != 1) at::_foreach_mul_(group.gradients, scale);
    config_.kind == OptimizerConfig::Kind::kSgd ? sgd(group, learning_rate) : adam(group, learning_rate);
  }
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = torch::Tensor();
}

// On a device all parameters together, in few kernels; on the CPU one by one, while the values are in the cache.
std::vector<Optimizer::Group> Optimizer::groups() const {
  std::vector<Group> all;
  for (const auto& [name, parameter] : parameters_) {
    if (!parameter.grad().defined()) continue;
    if (all.empty() || parameter.is_cpu()) all.emplace_back();
    all.back().names.push_back(name);
    all.back().parameters.push_back(parameter);
    all.back().gradients.push_back(parameter.grad());
  }
  return all;
}

std::vector<torch::Tensor> Optimizer::slots(const Group& group, const std::string& kind) {
  std::vector<torch::Tensor> found;
  for (std::size_t i = 0; i < group.names.size(); ++i) {
    torch::Tensor& slot = slots_[group.names[i] + "/" + kind];
    if (!slot.defined()) slot = torch::zeros_like(group.parameters[i]);
    found.push_back(slot);
  }
  return found;
}

void Optimizer::sgd(const Group& group, double learning_rate) {
  std::vector<torch::Tensor> directions = group.gradients;
  if (config_.weight_decay != 0) directions = at::_foreach_add(directions, group.parameters, config_.weight_decay);
  if (config_.momentum != 0) {
    const auto velocities = slots(group, "momentum");  // 0 at first: the first velocity is the gradient, as in torch.optim
    at::_foreach_mul_(velocities, config_.momentum);
    at::_foreach_add_(velocities, directions, 1);
    directions = config_.nesterov ? at::_foreach_add(directions, velocities, config_.momentum) : velocities;
  }
  at::_foreach_add_(group.parameters, directions, -learning_rate);
}

void Optimizer::adam(const Group& group, double learning_rate) {
  std::vector<torch::Tensor> gradients = group.gradients;
  if (config_.kind == OptimizerConfig::Kind::kAdamW) {
    at::_foreach_mul_(group.parameters, 1 - learning_rate * config_.weight_decay);
  } else if (config_.weight_decay != 0) {
    gradients = at::_foreach_add(gradients, group.parameters, config_.weight_decay);
  }
  const auto first = slots(group, "first");
  const auto second = slots(group, "second");
  at::_foreach_mul_(first, config_.beta1);
  at::_foreach_add_(first, gradients, 1 - config_.beta1);
  at::_foreach_mul_(second, config_.beta2);
  at::_foreach_addcmul_(second, gradients, gradients, 1 - config_.beta2);
  const auto steps = static_cast<double>(steps_);
  const double first_bias = 1 - std::pow(config_.beta1, steps);
  const double second_bias = 1 - std::pow(config_.beta2, steps);
  const auto scale = at::_foreach_sqrt(second);
  at::_foreach_div_(scale, std::sqrt(second_bias));
  at::_foreach_add_(scale, config_.eps);
  at::_foreach_addcdiv_(group.parameters, first, scale, -learning_rate / first_bias);
}

torch::Tensor Optimizer::scale(const std::string& name, const torch::Tensor& gradient) const {
  if (config_.kind == OptimizerConfig::Kind::kSgd) return {};
  constexpr double kTiny = 1e-30;  // where neither gradient nor --eps is above 0
  const auto second = slots_.find(name + "/second");
  if (second == slots_.end()) return (gradient.to(torch::kFloat64).square().mean().sqrt() + config_.eps + kTiny).reciprocal();
  const double bias = 1 - std::pow(config_.beta2, static_cast<double>(steps_));
  return (second->second.to(torch::kFloat64).sqrt() / std::sqrt(bias) + config_.eps + kTiny).reciprocal();
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
