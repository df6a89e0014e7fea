// The update rules against LibTorch's own optimizers, and the learning rate against its definition.
#include "epipe/train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <numbers>

#include "epipe/train/lr_schedule.h"

namespace epipe::train {
namespace {

// Two parameters and their gradients for every step.
struct Problem {
  std::vector<torch::Tensor> parameters;

  Problem() {
    torch::manual_seed(1);
    parameters = {torch::randn({5, 4}).requires_grad_(), torch::randn({7}).requires_grad_()};
  }
  void set_gradients(std::int64_t step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + step));
    for (auto& p : parameters) p.mutable_grad() = torch::randn_like(p.detach());
  }
};

using MakeReference = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

void expect_parity(const OptimizerConfig& config, const MakeReference& make) {
  Problem ours;
  Problem theirs;
  Optimizer optimizer(config, {{"a", ours.parameters[0]}, {"b", ours.parameters[1]}});
  const auto reference = make(theirs.parameters);
  for (std::int64_t step = 0; step < 20; ++step) {
    ours.set_gradients(step);
    theirs.set_gradients(step);
    optimizer.step(0.01);
    reference->step();
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(torch::allclose(ours.parameters[i], theirs.parameters[i], 1e-6, 1e-7)) << "step " << step;
      EXPECT_FALSE(ours.parameters[i].grad().defined()) << "gradients are used up";
    }
  }
}

TEST(Optimizer, SgdMatchesLibTorch) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.1}) {
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        OptimizerConfig config;
        config.momentum = momentum;
        config.weight_decay = decay;
        config.nesterov = nesterov;
        expect_parity(config, [&](auto parameters) {
          return std::make_unique<torch::optim::SGD>(
              parameters, torch::optim::SGDOptions(0.01).momentum(momentum).weight_decay(decay).nesterov(nesterov));
        });
      }
    }
  }
}

TEST(Optimizer, AdamAndAdamWMatchLibTorch) {
  for (const double decay : {0.0, 0.1}) {
    OptimizerConfig config;
    config.weight_decay = decay;
    config.kind = OptimizerConfig::Kind::kAdam;
    expect_parity(config, [&](auto parameters) {
      return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).weight_decay(decay));
    });
    config.kind = OptimizerConfig::Kind::kAdamW;
    expect_parity(config, [&](auto parameters) {
      return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01).weight_decay(decay));
    });
  }
}

TEST(Optimizer, ContinuesFromItsStateBitForBit) {
  for (const auto kind : {OptimizerConfig::Kind::kSgd, OptimizerConfig::Kind::kAdam, OptimizerConfig::Kind::kAdamW}) {
    OptimizerConfig config;
    config.kind = kind;
    config.momentum = 0.9;
    Problem through;
    Problem resumed;
    Optimizer one(config, {{"a", through.parameters[0]}, {"a.b", through.parameters[1]}});
    Optimizer before(config, {{"a", resumed.parameters[0]}, {"a.b", resumed.parameters[1]}});
    for (std::int64_t step = 0; step < 3; ++step) {
      through.set_gradients(step);
      one.step(0.01);
      resumed.set_gradients(step);
      before.step(0.01);
    }
    Optimizer after(config, {{"a", resumed.parameters[0]}, {"a.b", resumed.parameters[1]}});
    after.set_state(before.state());
    through.set_gradients(3);
    one.step(0.01);
    resumed.set_gradients(3);
    after.step(0.01);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(through.parameters[i], resumed.parameters[i]));
  }
}

// What a gradient is multiplied by shows in the change of a weight when one element of it is twice as large.
TEST(Optimizer, SaysWhatItMultipliesAGradientBy) {
  Problem problem;
  OptimizerConfig config;
  EXPECT_FALSE(Optimizer(config, {{"a", problem.parameters[0]}}).scale("a", torch::ones({5, 4})).defined()) << "sgd: nothing";
  config.kind = OptimizerConfig::Kind::kAdam;
  Optimizer adam(config, {{"a", problem.parameters[0]}, {"b", problem.parameters[1]}});
  const auto first = adam.scale("a", torch::full({5, 4}, 4.0));
  EXPECT_EQ(first.numel(), 1);
  EXPECT_NEAR(first.item<double>(), 0.25, 1e-6);
  for (std::int64_t step = 0; step < 3; ++step) {
    problem.set_gradients(step);
    adam.step(0.01);
  }
  const auto second = adam.state().at("a/second").to(torch::kFloat64);
  const auto expected = 1 / ((second / (1 - std::pow(config.beta2, 3))).sqrt() + config.eps);
  EXPECT_TRUE(torch::allclose(adam.scale("a", torch::ones({5, 4})), expected, 1e-6));
}

TEST(Optimizer, RefusesNesterovWithoutMomentum) {
  OptimizerConfig config;
  config.nesterov = true;
  EXPECT_THROW(Optimizer(config, {}), std::invalid_argument);
  EXPECT_THROW(parse_optimizer("sdg"), std::invalid_argument);
}

TEST(LrSchedule, WarmsUpAndFollowsItsCurve) {
  LrSchedule s;
  s.base = 0.4;
  s.warmup_steps = 4;
  s.total_steps = 104;
  EXPECT_DOUBLE_EQ(s.at(0), 0.1) << "never 0";
  EXPECT_DOUBLE_EQ(s.at(3), 0.4);
  EXPECT_DOUBLE_EQ(s.at(50), 0.4);
  s.kind = LrSchedule::Kind::kLinear;
  EXPECT_DOUBLE_EQ(s.at(4), 0.4);
  EXPECT_DOUBLE_EQ(s.at(54), 0.2);
  EXPECT_DOUBLE_EQ(s.at(104), 0);
  s.kind = LrSchedule::Kind::kCosine;
  EXPECT_NEAR(s.at(54), 0.2, 1e-12);
  EXPECT_NEAR(s.at(29), 0.2 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  s.kind = LrSchedule::Kind::kPolynomial;
  EXPECT_DOUBLE_EQ(s.at(54), 0.1);
  EXPECT_THROW(parse_lr_schedule("cos"), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::train
