// Runs in mixed precision and with loss scaling: steps that are not finite are skipped by everybody and change nothing.
#include <gtest/gtest.h>

#include "epipe/session/loss_scaler.h"
#include "support/bad_sample.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using testing::expect_equal;
using testing::run;
using testing::TempFolder;
using testing::tensors_in;

TrainConfig precise_ring(const std::string& run_dir) {
  TrainConfig config;
  config.place = {0, 1, 0};
  config.chunks = 2;
  config.batch = 16;
  config.run_dir = run_dir;
  config.momentum = 0.9;
  config.clip = 1;
  config.max_steps = 6;
  return config;
}

std::vector<json> steps_of(const TrainConfig& config) { return testing::metrics_in(config.run_dir, "step"); }

class LossScaling : public ::testing::Test {
 protected:
  // Batches of 16, in order, of which that of this step holds an infinite pixel.
  void write_data(std::int64_t steps, std::int64_t bad_step) {
    testing::write_data_with_a_bad_sample(folder_.path(), 16 * steps, 16 * bad_step + 3);
  }
  TrainConfig over_data(const std::string& name, int epochs, std::int64_t max_steps) const {
    TrainConfig config = precise_ring(folder_.file(name));
    config.data = "npy:" + folder_.path();
    config.shuffle = false;
    config.codec = "power:2";
    config.loss_scaling = "on";
    config.epochs = epochs;
    config.max_steps = max_steps;
    return config;
  }

  TempFolder folder_;
};

TEST(LossScaler, HalvesAfterASkippedStepAndDoublesAfter2000GoodOnes) {
  session::LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 16384) << "a skipped step also starts the count anew";
  for (int i = 0; i < 2000; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, StaysWithinFloat32) {
  session::LossScaler scaler;
  for (int i = 0; i < 2000 * 200; ++i) scaler.update(false);
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(LossScaler, ContinuesFromItsState) {
  session::LossScaler scaler;
  scaler.update(true);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  session::LossScaler other;
  other.set_state(scaler.state());
  EXPECT_EQ(other.scale(), 32768);
  other.update(false);
  EXPECT_EQ(other.scale(), 65536);
  EXPECT_THROW(other.set_state({}), std::runtime_error);
}

TEST_F(LossScaling, ChangesNothingWhileAllIsFinite) {
  const TrainConfig off = precise_ring(folder_.file("off"));
  TrainConfig on = precise_ring(folder_.file("on"));
  on.loss_scaling = "on";
  run(off);
  EXPECT_EQ(run(on).skipped, 0U);
  testing::expect_equal_weights(off.run_dir, on.run_dir);
  EXPECT_FALSE(steps_of(off)[0].contains("loss_scale"));
  EXPECT_EQ(steps_of(on)[5]["loss_scale"], 65536);
  EXPECT_EQ(steps_of(on)[5]["skipped"], false);
}

TEST_F(LossScaling, ASkippedStepLeavesWeightsOptimizerStatisticsAndEncodersAlone) {
  write_data(4, 2);
  const TrainConfig before = over_data("before", 1, 2);
  const TrainConfig after = over_data("after", 1, 3);
  EXPECT_EQ(run(before).skipped, 0U);
  EXPECT_EQ(run(after).skipped, 1U);
  EXPECT_EQ(steps_of(after)[2]["skipped"], true);
  const std::string one = before.run_dir + "/checkpoints/step-000000002/";
  const std::string other = after.run_dir + "/checkpoints/step-000000003/";
  expect_equal(tensors_in(one + "model.safetensors"), tensors_in(other + "model.safetensors"));
  expect_equal(tensors_in(one + "encoders.safetensors"), tensors_in(other + "encoders.safetensors"));
  auto left = tensors_in(one + "optimizer.safetensors");
  auto right = tensors_in(other + "optimizer.safetensors");
  EXPECT_EQ(left.at("loss_scale").item<double>(), 65536);
  EXPECT_EQ(right.at("loss_scale").item<double>(), 32768);
  for (const char* name : {"loss_scale", "good_steps"}) {
    left.erase(name);
    right.erase(name);
  }
  expect_equal(left, right);
}

TEST_F(LossScaling, ResumesBitForBitAfterASkippedStep) {
  write_data(4, 1);
  const TrainConfig whole = over_data("whole", 2, 6);
  TrainConfig parts = over_data("parts", 2, 6);
  EXPECT_EQ(run(whole).skipped, 2U);
  EXPECT_TRUE(run(parts, 3).stopped);
  parts.resume = true;
  EXPECT_EQ(run(parts).skipped, 1U);
  testing::expect_equal_weights(whole.run_dir, parts.run_dir);
  EXPECT_EQ(steps_of(parts)[5]["loss_scale"], 32768);
}

TEST_F(LossScaling, GivesUpWhenNoScaleHelps) {
  write_data(1, 0);  // every batch holds it
  const TrainConfig config = over_data("run", 100, 0);
  try {
    run(config);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("not finite at any loss scale"), std::string::npos) << error.what();
  }
  EXPECT_EQ(steps_of(config).size(), 32U);
}

TEST(MixedPrecision, LearnsAndResumesBitForBit) {
  const TempFolder folder;
  TrainConfig whole = precise_ring(folder.file("whole"));
  whole.precision = "bf16";
  whole.max_steps = 40;
  TrainConfig parts = whole;
  parts.run_dir = folder.file("parts");
  run(whole);
  EXPECT_LT(steps_of(whole)[39]["loss"].get<double>(), 0.7 * steps_of(whole)[0]["loss"].get<double>());
  EXPECT_NEAR(steps_of(whole)[0]["cuts"][0]["bits_per_value"].get<double>(), 16, 0.2);
  run(parts, 7);
  TrainConfig other = parts;
  other.resume = true;
  other.precision = "fp32";
  EXPECT_THROW(run(other), std::invalid_argument);
  parts.resume = true;
  run(parts);
  testing::expect_equal_weights(whole.run_dir, parts.run_dir);
  for (const auto& [name, tensor] : testing::weights_in(whole.run_dir)) {
    EXPECT_NE(tensor.scalar_type(), torch::kBFloat16) << name << ": weights stay float32";
  }
}

TEST(MixedPrecision, EvaluatesAsItTrains) {
  const TempFolder folder;
  TrainConfig config = precise_ring(folder.file("run"));
  config.precision = "bf16";
  const double trained = run(config).val_loss;
  EXPECT_EQ(evaluate(testing::registry(), config, config.run_dir + "/model.safetensors").val_loss, trained);
  config.precision = "fp32";
  EXPECT_NE(evaluate(testing::registry(), config, config.run_dir + "/model.safetensors").val_loss, trained);
}

}  // namespace
}  // namespace epipe::train
