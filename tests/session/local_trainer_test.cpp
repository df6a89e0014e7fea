// What one process computes of a run, and when it counts.
#include "epipe/session/local_trainer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "epipe/model/adaptation.h"
#include "epipe/train/local_setup.h"
#include "support/train_run.h"
#include "support/training.h"

namespace epipe::session {
namespace {

using namespace epipe::testing;

train::Plan plan() {
  train::Plan plan;
  plan.model = "cnn";
  plan.data = kImages;
  plan.cuts = {1, 3};
  plan.place = {0, 1, 0};
  plan.codecs = {{"power:2", "power:2"}, {"none", "ec:4"}};
  plan.chunks = 3;
  plan.momentum = 0.9;
  return plan;
}

void begin(LocalTrainer& trainer) {
  const auto model = make_model("cnn", kImages, 7);
  for (std::size_t l = 0; l < model.layers.size(); ++l) trainer.load(l, weights_of(*model.layers[l]));
  trainer.start_over();
}

std::unique_ptr<LocalTrainer> connected_trainer() {
  auto trainer = make_local_trainer(train::resolve(plan(), architecture_of("cnn", kImages)), {});
  begin(*trainer);
  trainer->connect({}, transport::kNoTimeout);
  return trainer;
}

TEST(LocalTrainer, AnUpdateThatIsKnownBeforeTheGradientsGivesTheSameState) {
  const auto early = connected_trainer();
  const auto late = connected_trainer();
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto batch = random_batch(kImages, 12, step);
    const Update update{0.1, 0.5, false};
    const auto a = early->forward_backward(batch, {0, step}, &update);
    const auto b = late->forward_backward(batch, {0, step});
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(early->steps_done(), step) << "it counts when it is committed";
    early->commit(step, update);
    late->commit(step, update);
    early->commit(step, update);  // again: nothing happens
  }
  const Checkpoint one = early->checkpoint();
  const Checkpoint other = late->checkpoint();
  EXPECT_EQ(one.step, other.step);
  expect_equal(one.model, other.model);
  expect_equal(one.optimizer, other.optimizer);
  expect_equal(one.encoders, other.encoders);
}

train::Plan half_frozen() {
  train::Plan half = plan();
  half.frozen = {0, 2};
  half.optimizer = "adamw";
  return half;
}

std::unique_ptr<LocalTrainer> half_frozen_trainer() {
  auto architecture = architecture_of("cnn", kImages);
  model::Adaptation adaptation;
  adaptation.frozen = half_frozen().frozen;
  model::adapt(architecture, adaptation);
  return make_local_trainer(train::resolve(half_frozen(), architecture), {});
}

TEST(LocalTrainer, SharesFrozenParametersAmongItsCheckpoints) {
  const auto trainer = half_frozen_trainer();
  begin(*trainer);
  const Checkpoint first = trainer->checkpoint();
  trainer->connect({}, transport::kNoTimeout);
  const auto step = [](LocalTrainer& one, std::uint64_t number) {
    one.forward_backward(random_batch(kImages, 12, number), {0, number});
    one.commit(number, {0.01, 1, false});
  };
  step(*trainer, 0);
  const Checkpoint second = trainer->checkpoint();
  ASSERT_NE(first.frozen, nullptr);
  EXPECT_EQ(second.frozen, first.frozen) << "the same object, so that it is written once";
  NamedTensors all = second.model;
  all.insert(second.frozen->begin(), second.frozen->end());
  EXPECT_EQ(all.size(), second.model.size() + second.frozen->size()) << "nothing is in both";
  expect_equal(all, trainer->weights());

  Checkpoint copy = second;  // as it would be in a file
  for (auto* const tensors : {&copy.model, &copy.optimizer, &copy.encoders}) {
    for (auto& [name, tensor] : *tensors) tensor = tensor.clone();
  }
  auto frozen = *second.frozen;
  for (auto& [name, tensor] : frozen) tensor = tensor.clone();
  copy.frozen = std::make_shared<const NamedTensors>(std::move(frozen));
  const auto other = half_frozen_trainer();
  other->restore(copy);
  other->connect({}, transport::kNoTimeout);
  for (LocalTrainer* const one : {trainer.get(), other.get()}) step(*one, 1);
  expect_equal(trainer->weights(), other->weights());
  expect_equal(trainer->checkpoint().optimizer, other->checkpoint().optimizer);

  copy.frozen = nullptr;
  EXPECT_THROW(other->restore(copy), std::runtime_error) << "a checkpoint without them is not whole";
  begin(*trainer);
  EXPECT_NE(trainer->checkpoint().frozen, first.frozen) << "a run that begins anew may have others";
}

TEST(LocalTrainer, BeginsWithAllItsLayersOrNotAtAll) {
  const auto trainer = connected_trainer();
  const auto model = make_model("cnn", kImages, 7);
  trainer->load(0, weights_of(*model.layers[0]));
  EXPECT_THROW(trainer->start_over(), std::invalid_argument);
  EXPECT_FALSE(trainer->whole()) << "a coordinator that is lost here does not go on from it";
  EXPECT_THROW(trainer->checkpoint(), std::logic_error) << "it has weights of two runs";
  EXPECT_THROW(trainer->load(1, weights_of(*model.layers[0])), std::invalid_argument);
  EXPECT_THROW(trainer->load(99, {}), std::invalid_argument);
  begin(*trainer);
  EXPECT_TRUE(trainer->whole());
  EXPECT_EQ(trainer->checkpoint().step, 0U);
}

TEST(LocalTrainer, RefusesACheckpointOfAnEarlierVersion) {
  const auto trainer = connected_trainer();
  Checkpoint saved = trainer->checkpoint();
  EXPECT_NO_THROW(trainer->restore(saved));
  const auto config = nlohmann::json::parse(saved.config);
  auto without = config;
  without.erase("format");
  auto older = config;
  older["format"] = config.at("format").get<int>() - 1;
  for (const auto& earlier : {without, older}) {
    saved.config = earlier.dump();
    try {
      trainer->restore(saved);
      ADD_FAILURE() << "it was restored";
    } catch (const std::invalid_argument& refused) {
      EXPECT_NE(std::string(refused.what()).find("earlier version"), std::string::npos) << refused.what();
    }
  }
}

TEST(LocalTrainer, AStepThatFailedHalfwayIsNeverSaved) {
  const auto trainer = connected_trainer();
  auto batch = random_batch(kImages, 12, 0);
  batch.inputs[0][11].fill_(std::numeric_limits<float>::quiet_NaN());
  const Update update{0.1, 1, false};
  EXPECT_THROW(trainer->forward_backward(batch, {0, 0}, &update), std::runtime_error);
  EXPECT_THROW(trainer->checkpoint(), std::logic_error);
  EXPECT_THROW(trainer->forward_backward(random_batch(kImages, 12, 0), {0, 0}), std::logic_error);
  begin(*trainer);
  EXPECT_EQ(trainer->checkpoint().step, 0U);
}

}  // namespace
}  // namespace epipe::session
