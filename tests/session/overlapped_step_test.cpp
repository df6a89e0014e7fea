// Gradients that are applied one step late: what --delay 1 computes is what a loop computes that keeps the weights of two steps by hand.
#include <gtest/gtest.h>

#include "epipe/session/local_trainer.h"
#include "epipe/train/local_setup.h"
#include "epipe/train/optimizer.h"
#include "support/train_run.h"
#include "support/training.h"

namespace epipe::session {
namespace {

using namespace epipe::testing;
using pipeline::Pipeline;
using pipeline::Stage;

constexpr std::uint64_t kSteps = 6;
const data::DataSpec kPhotos{data::DataSpec::Kind::kImages, {3, 40, 40}, 5};

const data::DataSpec& data_of(const std::string& model) {
  return model == "transformer" ? kText : model == "mobilenet_v2" ? kPhotos : kImages;
}

layer::Batch batch_of(const std::string& model, std::uint64_t step) {
  return random_batch(data_of(model), step == 3 ? 7 : 10, step, static_cast<std::int64_t>(10 * step));
}

double lr_of(const std::string& model, std::uint64_t step) {
  return (model == "mobilenet_v2" ? 1e-3 : 0.05) / static_cast<double>(1 + step);  // another one in each step
}

train::Plan plan_of(const std::string& model, const std::vector<std::size_t>& cuts, const std::vector<int>& place,
                    const std::string& optimizer) {
  train::Plan plan;
  plan.model = model;
  plan.data = data_of(model);
  plan.cuts = cuts;
  plan.place = place;
  plan.codecs.resize(cuts.size());
  plan.chunks = 4;
  plan.optimizer = optimizer;
  plan.momentum = optimizer == "sgd" ? 0.9 : 0;
  plan.weight_decay = 0.01;
  plan.delay = 1;
  plan.seed = 11;
  return plan;
}

void copy_into(const std::vector<torch::Tensor>& from, std::vector<torch::Tensor> to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
}

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

struct Trained {
  NamedTensors weights;
  std::vector<double> losses;
};

// u_{k+1} = optimizer(u_k, gradient of step k at u_{k-1}), one step after the other, every version a copy.
Trained by_hand(const train::Plan& plan) {
  const auto model = make_model(plan.model, plan.data, 7);
  std::vector<torch::Tensor> parameters;
  NamedParameters named;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) {
      parameters.push_back(item.value());
      named.emplace_back(layer->full_name(item.key()), item.value());
    }
  }
  train::Optimizer optimizer(train::optimizer_config(plan), named);
  pipeline::PipelineConfig config;
  config.chunks = plan.chunks;
  config.seed = plan.seed;
  Pipeline pipeline(model.layers, config, classification_loss);
  Trained trained;
  auto previous = copies(parameters);
  auto newest = copies(parameters);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    copy_into(previous, parameters);
    trained.losses.push_back(pipeline.train_step(batch_of(plan.model, step), {0, step}).loss);
    copy_into(newest, parameters);
    previous = std::move(newest);
    optimizer.step(lr_of(plan.model, step), 1);
    pipeline.commit_batch();
    newest = copies(parameters);
  }
  for (const auto& layer : model.layers) trained.weights.merge(weights_of(*layer));
  return trained;
}

std::unique_ptr<LocalTrainer> connected(const train::Plan& plan) {
  train::LocalWorkers own;
  own.loss = classification_loss;
  auto trainer = make_local_trainer(train::resolve(plan, architecture_of(plan.model, plan.data)), std::move(own));
  const auto model = make_model(plan.model, plan.data, 7);
  for (std::size_t l = 0; l < model.layers.size(); ++l) trainer->load(l, weights_of(*model.layers[l]));
  trainer->start_over();
  trainer->connect({}, transport::kNoTimeout);
  return trainer;
}

void complete(LocalTrainer& trainer, const train::Plan& plan) {
  const std::uint64_t step = trainer.steps_done();
  trainer.overlapped_step(nullptr, {});
  trainer.commit(step, {lr_of(plan.model, step), 1, false});
}

double begin_step(LocalTrainer& trainer, const train::Plan& plan, std::uint64_t step) {
  const layer::Batch batch = batch_of(plan.model, step);
  const double loss = trainer.overlapped_step(&batch, {0, step}).loss;
  if (trainer.steps_done() < step) trainer.commit(step - 1, {lr_of(plan.model, step - 1), 1, false});
  return loss;
}

struct Case {
  std::string model;
  std::vector<std::size_t> cuts;
  std::vector<int> place;
  std::string optimizer;
  bool recompute = false;
  std::string precision = "fp32";

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.model << " on " << schedule::to_string(schedule::Placement{c.place}) << ", " << c.optimizer
         << (c.recompute ? ", recompute" : "") << ", " << c.precision;
  }
};

class OverlappedStep : public ::testing::TestWithParam<Case> {
 protected:
  static train::Plan plan() {
    const Case& c = GetParam();
    train::Plan plan = plan_of(c.model, c.cuts, c.place, c.optimizer);
    plan.recompute = c.recompute;
    plan.precision = c.precision;
    return plan;
  }
};

TEST_P(OverlappedStep, ComputesWhatALoopDoesThatKeepsTwoVersions) {
  if (plan().precision != "fp32") GTEST_SKIP() << "the loop computes in float32";
  const Trained expected = by_hand(plan());
  const auto trainer = connected(plan());
  std::vector<double> losses;
  for (std::uint64_t step = 0; step < kSteps; ++step) losses.push_back(begin_step(*trainer, plan(), step));
  complete(*trainer, plan());
  EXPECT_EQ(losses, expected.losses);
  expect_equal(trainer->weights(), expected.weights);
}

TEST_P(OverlappedStep, ComputesTheSameInOneStage) {
  train::Plan one = plan();
  one.cuts.clear();
  one.place = {0};
  one.codecs.clear();
  const auto single = connected(one);
  const auto several = connected(plan());
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(begin_step(*single, one, step), begin_step(*several, plan(), step));
  }
  complete(*single, one);
  complete(*several, plan());
  expect_equal(several->weights(), single->weights());
}

// As before a checkpoint, a validation or the end; and from a checkpoint on, and after a loss.
TEST_P(OverlappedStep, WhenThePipelineDrainsChangesNothing) {
  const auto never = connected(plan());
  const auto always = connected(plan());
  const auto disturbed = connected(plan());
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    begin_step(*never, plan(), step);
    begin_step(*always, plan(), step);
    complete(*always, plan());
    begin_step(*disturbed, plan(), step);
    if (step == 2) {  // step 2 had its forwards, step 1 is committed
      disturbed->connect({}, transport::kNoTimeout);
      begin_step(*disturbed, plan(), step);
    }
    if (step != 4) continue;
    complete(*disturbed, plan());
    const Checkpoint saved = disturbed->checkpoint();
    const auto elsewhere = connected(plan());
    begin_step(*elsewhere, plan(), 0);
    elsewhere->restore(saved);
    elsewhere->connect({}, transport::kNoTimeout);
    for (std::uint64_t more = 5; more < kSteps; ++more) begin_step(*elsewhere, plan(), more);
    complete(*elsewhere, plan());
    disturbed->restore(elsewhere->checkpoint());
    break;
  }
  for (std::uint64_t step = 5; step < kSteps; ++step) {
    begin_step(*never, plan(), step);
    begin_step(*always, plan(), step);
    complete(*always, plan());
  }
  complete(*never, plan());
  for (const auto& other : {&always, &disturbed}) {
    expect_equal((*other)->checkpoint().model, never->checkpoint().model);
    expect_equal((*other)->checkpoint().optimizer, never->checkpoint().optimizer);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, OverlappedStep,
                         ::testing::Values(Case{"mlp", {2}, {0, 1}, "sgd"}, Case{"cnn", {1, 3}, {0, 1, 0}, "sgd"},
                                           Case{"cnn", {1, 3}, {0, 1, 0}, "adamw"}, Case{"cnn", {1, 3}, {0, 1, 0}, "adamw", true},
                                           Case{"cnn", {1, 2, 3}, {0, 0, 1, 1}, "adam"}, Case{"cnn", {1, 2, 3}, {0, 1, 2, 3}, "sgd", true},
                                           Case{"transformer", {1, 2}, {0, 1, 2}, "adamw"}, Case{"mobilenet_v2", {1, 18}, {0, 1, 0}, "sgd"},
                                           Case{"cnn", {1, 3}, {0, 1, 0}, "sgd", false, "bf16"},
                                           Case{"transformer", {1, 2, 3}, {0, 1, 2, 0}, "adamw", true, "bf16"}));

TEST(OverlappedSteps, KeepTheEncodersOfTwoStepsApart) {
  train::Plan plan = plan_of("cnn", {1, 3}, {0, 1, 0}, "sgd");
  plan.codecs = {{"power:2", "power:2"}, {"power:2", "power:2"}};
  const auto undisturbed = connected(plan);
  const auto disturbed = connected(plan);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    begin_step(*undisturbed, plan, step);
    begin_step(*disturbed, plan, step);
    disturbed->connect({}, transport::kNoTimeout);  // the forwards are run again
    begin_step(*disturbed, plan, step);
  }
  complete(*undisturbed, plan);
  complete(*disturbed, plan);
  const Checkpoint a = undisturbed->checkpoint();
  const Checkpoint b = disturbed->checkpoint();
  EXPECT_FALSE(a.encoders.empty());
  expect_equal(a.encoders, b.encoders);
  expect_equal(a.model, b.model);
}

TEST(OverlappedSteps, AreRefusedWhereTheyDoNotFollow) {
  const train::Plan plan = plan_of("cnn", {1, 3}, {0, 1, 0}, "sgd");
  const auto trainer = connected(plan);
  const layer::Batch batch = batch_of("cnn", 0);
  EXPECT_THROW(trainer->overlapped_step(nullptr, {}), std::invalid_argument) << "nothing is under way";
  EXPECT_THROW(trainer->early_backwards(), std::invalid_argument);
  EXPECT_THROW(trainer->overlapped_step(&batch, {0, 1}), std::invalid_argument) << "step 0 was not";
  EXPECT_THROW(trainer->forward_backward(batch, {0, 0}), std::invalid_argument) << "it would apply its gradients at once";
  EXPECT_THROW(trainer->begin_step(), std::invalid_argument) << "a remote stage";
  EXPECT_THROW(trainer->audit(batch, {0, 0}, {}), std::invalid_argument);
  trainer->overlapped_step(&batch, {0, 0});
  EXPECT_THROW(trainer->overlapped_step(&batch, {0, 0}), std::invalid_argument);
  EXPECT_THROW(trainer->commit(0, {}), std::logic_error) << "it had its forwards alone";
  EXPECT_THROW(trainer->checkpoint(), std::invalid_argument);
  EXPECT_THROW(trainer->weights(), std::invalid_argument);
  EXPECT_THROW(trainer->evaluate(batch, {0, 0}), std::invalid_argument);
  trainer->overlapped_step(&batch, {0, 1});
  EXPECT_THROW(trainer->overlapped_step(nullptr, {}), std::invalid_argument) << "step 0 waits for its commit";
  trainer->commit(0, {0.1, 1, false});
  trainer->commit(0, {0.1, 1, false});  // again: nothing happens
  EXPECT_EQ(trainer->steps_done(), 1U);
  train::Plan at_once = plan;
  at_once.delay = 0;
  EXPECT_THROW(connected(at_once)->overlapped_step(&batch, {0, 0}), std::invalid_argument);
}

class Sharing final : public layer::Layer {
 public:
  Sharing() : Layer("shared") {}
  layer::Tensors forward(const layer::Tensors& in, const layer::ForwardContext&) override { return in; }
  double flops(const layer::Tensors&, const layer::Tensors&) const override { return 0; }
  std::vector<std::pair<std::string, torch::Tensor>> late_gradients() const override { return {{"shared", torch::ones({1})}}; }
};

TEST(OverlappedSteps, RefuseLayersThatShareAWeight) {
  LocalTrainerConfig config;
  config.layers = {std::make_shared<Sharing>()};
  config.pipeline.delay = 1;
  EXPECT_THROW(LocalTrainer(std::move(config)), std::invalid_argument);
}

TEST(OverlappedSteps, RefuseACheckpointWithoutTheWeightsBefore) {
  const train::Plan plan = plan_of("cnn", {1, 3}, {0, 1, 0}, "sgd");
  const auto trainer = connected(plan);
  Checkpoint saved = trainer->checkpoint();
  trainer->restore(saved);
  EXPECT_EQ(std::erase_if(saved.optimizer, [](const auto& item) { return item.first.starts_with("previous weights/"); }), 14U);
  EXPECT_THROW(trainer->restore(saved), std::runtime_error);
  EXPECT_FALSE(trainer->whole());
}

}  // namespace
}  // namespace epipe::session
