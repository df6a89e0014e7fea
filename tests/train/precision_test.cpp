// Runs in mixed precision and with loss scaling: steps that are not finite are skipped by everybody and change nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/model/safetensors.h"
#include "epipe/train/loss_scaler.h"
#include "epipe/train/trainer.h"
#include "support/bad_sample.h"
#include "support/temp_folder.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using testing::TempFolder;
using testing::write_data_with_a_bad_sample;

class Silent final : public Observer {
 public:
  void on_step(const Progress& progress) override {
    if (stop_after != 0 && progress.step >= stop_after) stop = true;
  }
  void on_epoch(const EpochResult&) override {}
  void on_note(const std::string&) override {}

  std::uint64_t stop_after = 0;
  std::atomic<bool> stop = false;
};

TrainResult run(const TrainConfig& config, std::uint64_t stop_after = 0) {
  Silent observer;
  observer.stop_after = stop_after;
  return train(config, observer, observer.stop);
}

TrainConfig ring(const std::string& run_dir) {
  TrainConfig config;
  config.place = {0, 1, 0};
  config.chunks = 2;
  config.batch = 16;
  config.run_dir = run_dir;
  config.update.momentum = 0.9;
  config.clip = 1;
  config.max_steps = 6;
  return config;
}

TrainConfig ring_over_bad_sample(const TempFolder& folder, const std::string& name) {
  TrainConfig config = ring(folder.file(name));
  config.data = "npy:" + folder.path();
  config.shuffle = false;
  config.codec = "power:2";
  config.loss_scaling = "on";
  return config;
}

std::map<std::string, torch::Tensor> tensors_of(const std::string& path) {
  auto file = model::read_safetensors(path);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(file).value().tensors;
}

void expect_equal(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(torch::equal(tensor, b.at(name))) << name;
}

std::vector<json> steps_of(const TrainConfig& config) {
  std::ifstream file(config.run_dir + "/metrics.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    if (json::parse(line)["kind"] == "step") lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(LossScaler, HalvesAfterASkippedStepAndDoublesAfter2000GoodOnes) {
  LossScaler scaler;
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
  LossScaler scaler;
  for (int i = 0; i < 2000 * 200; ++i) scaler.update(false);
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(LossScaler, ContinuesFromItsState) {
  LossScaler scaler;
  scaler.update(true);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  LossScaler other;
  other.set_state(scaler.state());
  EXPECT_EQ(other.scale(), 32768);
  other.update(false);
  EXPECT_EQ(other.scale(), 65536);
  EXPECT_THROW(other.set_state({}), std::runtime_error);
}

TEST(LossScaling, ChangesNothingWhileAllIsFinite) {
  const TempFolder folder;
  const TrainConfig off = ring(folder.file("off"));
  TrainConfig on = ring(folder.file("on"));
  on.loss_scaling = "on";
  run(off);
  EXPECT_EQ(run(on).skipped, 0U);
  expect_equal(tensors_of(off.run_dir + "/model.safetensors"), tensors_of(on.run_dir + "/model.safetensors"));
  EXPECT_FALSE(steps_of(off)[0].contains("loss_scale"));
  EXPECT_EQ(steps_of(on)[5]["loss_scale"], 65536);
  EXPECT_EQ(steps_of(on)[5]["skipped"], false);
}

TEST(LossScaling, ASkippedStepLeavesWeightsOptimizerStatisticsAndEncodersAlone) {
  const TempFolder folder;
  write_data_with_a_bad_sample(folder.path(), 64, 16 * 2 + 5);  // in step 2
  TrainConfig before = ring_over_bad_sample(folder, "before");
  before.max_steps = 2;
  TrainConfig after = ring_over_bad_sample(folder, "after");
  after.max_steps = 3;
  EXPECT_EQ(run(before).skipped, 0U);
  EXPECT_EQ(run(after).skipped, 1U);
  EXPECT_EQ(steps_of(after)[2]["skipped"], true);
  const std::string one = before.run_dir + "/checkpoints/step-000000002/";
  const std::string other = after.run_dir + "/checkpoints/step-000000003/";
  expect_equal(tensors_of(one + "model.safetensors"), tensors_of(other + "model.safetensors"));
  expect_equal(tensors_of(one + "encoders.safetensors"), tensors_of(other + "encoders.safetensors"));
  auto left = tensors_of(one + "optimizer.safetensors");
  auto right = tensors_of(other + "optimizer.safetensors");
  EXPECT_EQ(left.at("loss_scale").item<double>(), 65536);
  EXPECT_EQ(right.at("loss_scale").item<double>(), 32768);
  for (const char* name : {"loss_scale", "good_steps"}) {
    left.erase(name);
    right.erase(name);
  }
  expect_equal(left, right);
}

TEST(LossScaling, ResumesBitForBitAfterASkippedStep) {
  const TempFolder folder;
  write_data_with_a_bad_sample(folder.path(), 64, 16 * 1 + 3);  // in step 1
  TrainConfig whole = ring_over_bad_sample(folder, "whole");
  whole.epochs = 2;
  TrainConfig parts = ring_over_bad_sample(folder, "parts");
  parts.epochs = 2;
  EXPECT_EQ(run(whole).skipped, 2U);
  EXPECT_TRUE(run(parts, 3).stopped);
  parts.resume = true;
  EXPECT_EQ(run(parts).skipped, 1U);
  expect_equal(tensors_of(whole.run_dir + "/model.safetensors"), tensors_of(parts.run_dir + "/model.safetensors"));
  EXPECT_EQ(steps_of(parts)[5]["loss_scale"], 32768);
}

TEST(LossScaling, GivesUpWhenNoScaleHelps) {
  const TempFolder folder;
  write_data_with_a_bad_sample(folder.path(), 16, 2);  // every batch holds it
  TrainConfig config = ring_over_bad_sample(folder, "run");
  config.epochs = 100;
  config.max_steps = 0;
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
  TrainConfig whole = ring(folder.file("whole"));
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
  expect_equal(tensors_of(whole.run_dir + "/model.safetensors"), tensors_of(parts.run_dir + "/model.safetensors"));
  for (const auto& [name, tensor] : tensors_of(whole.run_dir + "/model.safetensors")) {
    EXPECT_NE(tensor.scalar_type(), torch::kBFloat16) << name << ": weights stay float32";
  }
}

TEST(MixedPrecision, EvaluatesAsItTrains) {
  const TempFolder folder;
  TrainConfig config = ring(folder.file("run"));
  config.precision = "bf16";
  const double trained = run(config).val_loss;
  EXPECT_EQ(evaluate(config, config.run_dir + "/model.safetensors").val_loss, trained);
  config.precision = "fp32";
  EXPECT_NE(evaluate(config, config.run_dir + "/model.safetensors").val_loss, trained);
}

}  // namespace
}  // namespace epipe::train
