#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "epipe/session/optimizer.h"

namespace epipe::train {

struct OptimizerConfig {
  enum class Kind : std::uint8_t { kSgd, kAdam, kAdamW };
  Kind kind = Kind::kSgd;
  double momentum = 0;  // sgd
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;  // adam, adamw
  double beta2 = 0.999;
  double eps = 1e-8;
};

using session::NamedParameters;

// The update rules of torch.optim, over the parameters of one worker. Parameters without a gradient are left alone.
class Optimizer final : public session::Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, NamedParameters parameters);

  // Frees the gradients while the device is still working, not while it waits for the next step.
  void step(double learning_rate, double scale = 1) override;

  torch::Tensor scale(const std::string& name, const torch::Tensor& gradient) const override;

  // "name/momentum", "name/first", "name/second", "steps"
  model::NamedTensors state() const override;
  void set_state(const model::NamedTensors& state) override;

 private:
  // Parameters that one operation updates together, with their gradients and names.
  struct Group {
    std::vector<std::string> names;
    std::vector<torch::Tensor> parameters;
    std::vector<torch::Tensor> gradients;
  };
  std::vector<Group> groups() const;
  void sgd(const Group& group, double learning_rate);
  void adam(const Group& group, double learning_rate);
  std::vector<torch::Tensor> slots(const Group& group, const std::string& kind);

  OptimizerConfig config_;
  NamedParameters parameters_;
  std::map<std::string, torch::Tensor> slots_;
  std::int64_t steps_ = 0;
};

// "sgd", "adam", "adamw"; otherwise throws std::invalid_argument.
OptimizerConfig::Kind parse_optimizer(const std::string& name);
std::string to_string(OptimizerConfig::Kind kind);

}  // namespace epipe::train
