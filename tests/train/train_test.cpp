// Whole runs: they learn, they write what the contract names, and they continue bit for bit.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "epipe/data/loader.h"
#include "epipe/schedule/generate.h"
#include "epipe/train/trainer.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using testing::expect_equal_weights;
using testing::run;
using testing::TempFolder;

TrainConfig ring(const std::string& model, const std::string& folder) {
  TrainConfig config;
  config.model = model;
  config.place = {0, 1, 0};
  config.chunks = 4;
  config.run_dir = folder;
  config.seed = 3;
  config.lr = 0.1;
  config.momentum = 0.9;
  return config;
}

std::vector<double> losses_of(const TrainConfig& config) {
  std::vector<double> losses;
  for (const json& line : testing::metrics_in(config.run_dir, "step")) losses.push_back(line["loss"]);
  return losses;
}

TEST(Train, LearnsTheSyntheticData) {
  for (const std::string model : {"mlp", "cnn", "transformer"}) {
    const TempFolder folder;
    TrainConfig config = ring(model, folder.path());
    config.epochs = 2;
    config.codec = "sort:6+2";
    if (model == "mlp") config.lr = 0.02;
    if (model == "transformer") {
      config.optimizer = "adamw";
      config.lr = 0.003;
    }
    const TrainResult result = run(config);
    EXPECT_GT(result.val_accuracy, 0.75) << model;
    EXPECT_GT(result.bytes_per_step, 0);
  }
}

TEST(Train, WritesWhatTheContractNames) {
  const TempFolder folder;
  TrainConfig config = ring("cnn", folder.path());
  config.max_steps = 12;
  config.codec = "uniform:8";
  config.codec_at = {parse_codec_at("1:backward=none")};
  config.error_every = 5;
  run(config);
  const auto lines = testing::metrics_in(folder.path());
  ASSERT_EQ(lines.size(), 13U) << "12 steps and an epoch";
  for (std::size_t i = 0; i < 12; ++i) {
    const json& line = lines[i];
    EXPECT_EQ(line["kind"], "step");
    EXPECT_EQ(line["step"], i);
    for (const char* field : {"epoch", "loss", "accuracy", "lr", "samples_per_s", "cuts", "workers"})
      ASSERT_TRUE(line.contains(field)) << field;
    ASSERT_EQ(line["cuts"].size(), 4U);
    for (const json& cut : line["cuts"]) {
      for (const char* field : {"cut", "direction", "codec", "wire_bytes", "bits_per_value", "rel_error", "recv_MBps"}) {
        ASSERT_TRUE(cut.contains(field)) << field;
      }
      EXPECT_EQ(cut["rel_error"].is_null(), i % 5 != 0);
    }
    EXPECT_EQ(line["cuts"][3]["codec"], "none");
    EXPECT_NEAR(line["cuts"][0]["bits_per_value"].get<double>(), 8, 0.2);
    ASSERT_EQ(line["workers"].size(), 2U);
    for (const char* field : {"data", "forward", "backward", "optimizer", "encode", "decode", "all_reduce", "wait", "peak_memory_bytes"}) {
      EXPECT_TRUE(line["workers"][1].contains(field)) << field;
    }
  }
  EXPECT_EQ(lines[12]["kind"], "epoch");
  EXPECT_TRUE(lines[12].contains("val_accuracy"));
  EXPECT_EQ(list_folder(folder.file("checkpoints")), std::vector<std::string>{"step-000000012"});
}

TEST(Train, TracesEveryWorkerAndBoundary) {
  const TempFolder folder;
  TrainConfig config = ring("cnn", folder.path());
  config.max_steps = 2;
  run(config);
  std::ifstream file(folder.file("trace.json"));
  const json trace = json::parse(file);
  std::set<std::string> categories;
  std::set<int> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    categories.insert(event["cat"]);
    tracks.insert(event["tid"].get<int>());
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  for (const char* category : {"forward", "backward", "encode", "decode", "send", "wait"})
    EXPECT_TRUE(categories.contains(category)) << category;
  EXPECT_EQ(tracks, (std::set<int>{0, 1, 100, 101, 102, 103, 104, 105, 106, 107}));
}

TEST(Train, ResumesBitForBit) {
  for (const std::string model : {"cnn", "transformer"}) {
    for (const std::string codec : {"none", "power:2>uniform:8"}) {
      const TempFolder folder;
      TrainConfig through = ring(model, folder.file("through"));
      through.max_steps = 9;
      through.codec = codec;
      through.clip = 1;
      run(through);
      // Lost after 4 steps with the last checkpoint at 3, then resumed twice.
      TrainConfig pieces = through;
      pieces.run_dir = folder.file("pieces");
      pieces.checkpoint_every = 3;
      pieces.max_steps = 4;
      run(pieces);
      ASSERT_TRUE(remove_tree(pieces.run_dir + "/checkpoints/step-000000004").ok());
      pieces.resume = true;
      pieces.max_steps = 7;
      EXPECT_EQ(run(pieces).steps, 7U);
      pieces.max_steps = 9;
      run(pieces);
      expect_equal_weights(through.run_dir, pieces.run_dir);
      EXPECT_EQ(losses_of(pieces), losses_of(through)) << "every step once, with the same loss";
    }
  }
}

TEST(Train, StopsWhenAskedAndContinues) {
  const TempFolder folder;
  TrainConfig through = ring("cnn", folder.file("through"));
  through.max_steps = 8;
  run(through);
  TrainConfig stopped = through;
  stopped.run_dir = folder.file("stopped");
  const TrainResult first = run(stopped, 5);
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 5U);
  stopped.resume = true;
  EXPECT_FALSE(run(stopped).stopped);
  expect_equal_weights(through.run_dir, stopped.run_dir);
}

TEST(Train, PlacementAndScheduleDoNotChangeTheWeights) {
  const TempFolder folder;
  TrainConfig single = ring("cnn", folder.file("single"));
  single.place = {0};
  single.max_steps = 5;
  single.clip = 0.5;
  run(single);
  for (const std::vector<int>& place : {std::vector<int>{0, 1}, {0, 1, 0}, {0, 1, 2}, {0, 1, 2, 3}}) {
    for (const std::string& schedule : schedule::schedule_names()) {
      if (schedule == "zb-h1" && place.back() == 0) continue;  // a ring
      TrainConfig cut = single;
      cut.place = place;
      cut.schedule = schedule;
      cut.run_dir = folder.file("cut" + std::to_string(place.size()) + std::to_string(place.back()) + schedule);
      run(cut);
      expect_equal_weights(single.run_dir, cut.run_dir);
    }
  }
}

TEST(Train, RefusesToResumeAnotherRun) {
  const TempFolder folder;
  TrainConfig config = ring("cnn", folder.path());
  config.max_steps = 2;
  run(config);
  config.resume = true;
  config.momentum = 0.8;
  EXPECT_THROW(run(config), std::invalid_argument);
  config.momentum = 0.9;
  config.run_dir = folder.file("elsewhere");
  EXPECT_THROW(run(config), std::runtime_error);
}

TEST(Train, NamesWhatIsWrongWithTheConfiguration) {
  const TempFolder folder;
  const auto message = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = ring("cnn", folder.path());
    change(config);
    try {
      run(config);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message([](TrainConfig& c) { c.model = "cn"; }).find("known are mlp, cnn, transformer"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.data = "cifar"; }).find("unknown data"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.cuts = {"featurs.1", "3"}; }).find("features.0"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.cuts = {"3", "1"}; }).find("ascend"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.codec = "sort:6"; }).find("sort:6"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.chunks = 65; }).find("65 chunks"), std::string::npos);
  EXPECT_NE(message([](TrainConfig& c) { c.codec_at = {{2, true, "none"}}; }).find("cut 2"), std::string::npos);
  EXPECT_THROW(parse_codec_at("1:sideways=none"), std::invalid_argument);
  EXPECT_THROW(parse_codec_at("none"), std::invalid_argument);
}

TEST(Train, CutsByNameAreCutsByIndex) {
  const TempFolder folder;
  TrainConfig by_index = ring("cnn", folder.file("index"));
  by_index.max_steps = 2;
  by_index.cuts = {"1", "4"};
  by_index.codec = "uniform:4";
  run(by_index);
  TrainConfig by_name = by_index;
  by_name.cuts = {"features.1", "classifier"};
  by_name.run_dir = folder.file("name");
  run(by_name);
  expect_equal_weights(by_index.run_dir, by_name.run_dir);
}

TEST(Loader, ShowsEverySampleOncePerEpochInAnOrderOfItsOwn) {
  const auto data = data::make_synthetic(data::DataSpec::Kind::kImages, 1);
  const std::uint64_t per_epoch = data::Loader::steps_per_epoch(data.train->size(), 300);
  data::Loader loader(*data.train, {300, true, 5, 0, 2 * per_epoch});
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::uint64_t step = 0; step < 2 * per_epoch; ++step) {
    const auto loaded = loader.next();
    EXPECT_EQ(loaded.step, step);
    EXPECT_EQ(loaded.last_of_epoch, (step + 1) % per_epoch == 0);
    auto& seen = epochs[loaded.epoch];
    seen.insert(seen.end(), loaded.batch.samples.begin(), loaded.batch.samples.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& seen : epochs) {
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<std::int64_t>(i));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), data.train->size());
  }
}

}  // namespace
}  // namespace epipe::train
