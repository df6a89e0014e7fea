// What one process computes of a run, and when it counts.
#include "epipe/train/local_trainer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "support/train_run.h"
#include "support/training.h"

namespace epipe::train {
namespace {

using namespace epipe::testing;

Plan plan() {
  Plan plan;
  plan.model = "cnn";
  plan.data = kImages;
  plan.cuts = {1, 3};
  plan.place = {0, 1, 0};
  plan.codecs = {{"power:2", "power:2"}, {"none", "ec:4"}};
  plan.chunks = 3;
  plan.momentum = 0.9;
  return plan;
}

std::unique_ptr<LocalTrainer> connected_share() {
  auto share = std::make_unique<LocalTrainer>(plan(), model::make_model("cnn", kImages, 7), LocalWorkers{});
  share->connect({}, transport::kNoTimeout);
  return share;
}

TEST(LocalTrainer, AnUpdateThatIsKnownBeforeTheGradientsGivesTheSameState) {
  const auto early = connected_share();
  const auto late = connected_share();
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

TEST(LocalTrainer, RefusesACheckpointOfAnEarlierVersion) {
  const auto share = connected_share();
  Checkpoint saved = share->checkpoint();
  EXPECT_NO_THROW(share->restore(saved));
  const auto config = nlohmann::json::parse(saved.config);
  auto without = config;
  without.erase("format");
  auto older = config;
  older["format"] = config.at("format").get<int>() - 1;
  for (const auto& earlier : {without, older}) {
    saved.config = earlier.dump();
    try {
      share->restore(saved);
      ADD_FAILURE() << "it was restored";
    } catch (const std::invalid_argument& refused) {
      EXPECT_NE(std::string(refused.what()).find("earlier version"), std::string::npos) << refused.what();
    }
  }
}

TEST(LocalTrainer, AStepThatFailedHalfwayIsNeverSaved) {
  const auto share = connected_share();
  NamedTensors before;
  for (const auto& [name, tensor] : share->weights()) before.emplace(name, tensor.detach().clone());
  auto batch = random_batch(kImages, 12, 0);
  batch.inputs[0][11].fill_(std::numeric_limits<float>::quiet_NaN());
  const Update update{0.1, 1, false};
  EXPECT_THROW(share->forward_backward(batch, {0, 0}, &update), std::runtime_error);
  EXPECT_THROW(share->checkpoint(), std::logic_error);
  EXPECT_THROW(share->forward_backward(random_batch(kImages, 12, 0), {0, 0}), std::logic_error);
  share->start_over(before);
  EXPECT_EQ(share->checkpoint().step, 0U);
}

}  // namespace
}  // namespace epipe::train
