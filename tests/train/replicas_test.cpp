// Data parallel, and data x pipeline: replicas as threads with gloo between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/data/npy.h"
#include "epipe/session/checkpoint.h"
#include "epipe/train/assemble.h"
#include "epipe/transport/c10d/support.h"
#include "support/cluster.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using model::NamedTensors;
using session::Checkpoints;

using nlohmann::json;
using testing::Ends;
using testing::expect_equal;
using testing::run;
using testing::TempFolder;
using testing::train_as_cluster;

class Replicas : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!transport::gloo_part().available) GTEST_SKIP() << "gloo is not in this build";
  }

  TrainConfig config(const std::string& name) const {
    TrainConfig c = testing::small_run(folder_.file(name));
    c.max_steps = 5;
    c.timeout = 20;
    c.load_threads = 1;
    return c;
  }
  TrainConfig config(const std::string& name, int replicas, int chunks, const std::vector<int>& place) const {
    TrainConfig c = config(name);
    c.replicas = replicas;
    c.chunks = chunks;
    c.place = place;
    return c;
  }

  TempFolder folder_;
};

void expect_all_well(const Ends& ends) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) EXPECT_EQ(ends[rank], "") << "rank " << rank;
}

NamedTensors weights_after(const TrainConfig& config) { return testing::weights_in(config.run_dir); }

void expect_close(const NamedTensors& a, const NamedTensors& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const auto other = b.at(name);
    const double scale = std::max(1e-3, other.to(torch::kFloat64).abs().max().item<double>());
    EXPECT_LE((tensor - other).to(torch::kFloat64).abs().max().item<double>(), tolerance * scale) << name;
  }
}

std::string checkpoints_of(const TrainConfig& config, int rank) {
  return config.run_dir + "/checkpoints" + (rank > 0 ? "/worker-" + std::to_string(rank) : "");
}

// Weights, statistics and optimizer of every replica's workers are those of replica 0.
void expect_equal_replicas(const TrainConfig& config) {
  const int workers = ranks_of(config) / config.replicas;
  for (int rank = workers; rank < ranks_of(config); ++rank) {
    SCOPED_TRACE(::testing::Message() << "rank " << rank);
    const Checkpoints first(checkpoints_of(config, rank % workers));
    const Checkpoints other(checkpoints_of(config, rank));
    ASSERT_EQ(first.steps(), other.steps());
    const auto a = first.load(first.steps().back());
    const auto b = other.load(first.steps().back());
    expect_equal(a.model, b.model);
    expect_equal(a.optimizer, b.optimizer);
  }
}

std::vector<json> lines(const TrainConfig& config, const std::string& kind) { return testing::metrics_in(config.run_dir, kind); }

const std::vector<std::vector<int>> kPlaces = {{0}, {0, 1}, {0, 1, 0}};

// A replica of one micro-batch contributes what one micro-batch of a single replica contributes, and sums go in the replicas' order, as
// they go in the micro-batches' order: nothing is left that could round differently.
TEST_F(Replicas, OfOneMicroBatchEachGiveTheWeightsOfOneReplicaWithTwo) {
  for (const auto& place : kPlaces) {
    const auto id = std::to_string(place.size());
    const auto one = config("one-" + id, 1, 2, place);
    const auto two = config("two-" + id, 2, 1, place);
    run(one);
    expect_all_well(train_as_cluster(two));
    expect_equal(weights_after(one), weights_after(two));
    expect_equal_replicas(two);
  }
}

// Not bit for bit: (g0 + g1) + (g2 + g3) rounds differently from ((g0 + g1) + g2) + g3.
TEST_F(Replicas, OfSeveralMicroBatchesAgreeWithOneReplicaToRounding) {
  for (const std::string model : {"cnn", "transformer"}) {
    for (const auto& place : kPlaces) {
      const auto id = model + std::to_string(place.size());
      SCOPED_TRACE(id);
      auto one = config("one-" + id, 1, 4, place);
      auto two = config("two-" + id, 2, 2, place);
      one.model = two.model = model;
      two.schedule = "1f1b";
      run(one);
      expect_all_well(train_as_cluster(two));
      expect_close(weights_after(two), weights_after(one), 2e-5);
      expect_equal_replicas(two);
    }
  }
}

// The gradients of a stage that splits its backwards are complete with the last weight gradients, not before.
TEST_F(Replicas, ThatSplitBackwardsGiveTheWeightsOfThoseThatDoNot) {
  auto whole = config("whole", 2, 3, {0, 1});
  auto split = config("split", 2, 3, {0, 1});
  whole.schedule = "1f1b";
  split.schedule = "zb-h1";
  expect_all_well(train_as_cluster(whole));
  expect_all_well(train_as_cluster(split));
  expect_equal(weights_after(whole), weights_after(split));
  expect_equal_replicas(split);
}

TEST_F(Replicas, TakeOverTheStatisticsOfTheWholeBatch) {
  const auto one = config("one", 1, 4, {0});
  const auto two = config("two", 2, 2, {0});
  run(one);
  expect_all_well(train_as_cluster(two));
  const auto expected = weights_after(one);
  int compared = 0;
  for (const auto& [name, tensor] : weights_after(two)) {
    if (name.find("running_") == std::string::npos) continue;
    EXPECT_TRUE(torch::allclose(tensor, expected.at(name), 1e-6, 1e-6)) << name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST_F(Replicas, GiveTheSameBitsEveryTimeAndForEveryBucketSize) {
  std::vector<NamedTensors> weights;
  for (const std::int64_t bucket : {4096, 4096, 1, 37}) {
    auto three = config("run-" + std::to_string(weights.size()), 3, 2, {0, 1});
    three.batch = 18;
    three.bucket = bucket;
    expect_all_well(train_as_cluster(three));
    weights.push_back(weights_after(three));
    expect_equal_replicas(three);
  }
  for (const auto& again : weights) expect_equal(weights[0], again);
}

// 90 samples in batches of 89: the last of an epoch has one sample, so replica 1 has none. Few steps, because a ReLU at its edge that
// rounds to the other side makes a difference that grows.
TEST_F(Replicas, TakeUnevenPartsAndSometimesNone) {
  auto one = config("one", 1, 1, {0});
  auto two = config("two", 2, 3, {0, 1});
  one.model = two.model = "mlp";
  one.data_part = two.data_part = 90.0 / 2048;
  one.batch = two.batch = 89;
  one.epochs = two.epochs = 2;
  one.max_steps = two.max_steps = 0;
  run(one);
  expect_all_well(train_as_cluster(two));
  expect_close(weights_after(two), weights_after(one), 2e-5);
  expect_equal_replicas(two);
  const auto steps = lines(two, "step");
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[1].at("samples"), 1);
  EXPECT_EQ(steps[3].at("samples"), 1);
}

TEST_F(Replicas, ValidateEverySampleOnce) {
  auto one = config("one", 1, 2, {0, 1});
  auto two = config("two", 2, 1, {0, 1});
  one.batch = two.batch = 73;  // of the 512 samples, the last batch has one
  one.model = two.model = "mlp";
  run(one);
  expect_all_well(train_as_cluster(two));
  const json expected = lines(one, "epoch").at(0);
  const json epoch = lines(two, "epoch").at(0);
  EXPECT_NEAR(epoch.at("val_loss").get<double>(), expected.at("val_loss").get<double>(), 1e-5);
  EXPECT_NEAR(epoch.at("val_accuracy").get<double>(), expected.at("val_accuracy").get<double>(), 1.01 / 512);
  EXPECT_NEAR(epoch.at("val_metric").get<double>(), epoch.at("val_accuracy").get<double>(), 1e-9);
}

TEST_F(Replicas, ReportTheWholeRun) {
  const auto one = config("one", 1, 2, {0, 1, 0});
  const auto two = config("two", 2, 1, {0, 1, 0});
  run(one);
  expect_all_well(train_as_cluster(two));
  const auto expected = lines(one, "step");
  const auto steps = lines(two, "step");
  ASSERT_EQ(steps.size(), expected.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].at("loss").get<double>(), expected[i].at("loss").get<double>(), 1e-6);
    for (const char* const field : {"accuracy", "lr", "samples"}) EXPECT_EQ(steps[i].at(field), expected[i].at(field)) << field;
    ASSERT_EQ(steps[i].at("cuts").size(), 4U);
    for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(steps[i]["cuts"][k].at("wire_bytes"), expected[i]["cuts"][k].at("wire_bytes"));
    const json workers = steps[i].at("workers");
    ASSERT_EQ(workers.size(), 4U);
    for (std::size_t w = 0; w < 4; ++w) {
      EXPECT_EQ(workers[w].at("worker"), w);
      EXPECT_EQ(workers[w].at("replica"), w / 2);
      EXPECT_GT(workers[w].at("backward").get<double>(), 0);
      EXPECT_GT(workers[w].at("all_reduce").get<double>(), 0);
      EXPECT_GT(workers[w].at("all_reduce_bytes").get<std::uint64_t>(), 0U);
    }
  }
}

// Rank 3 is worker 1 of replica 1: rank 2, which leads it, passes on that a checkpoint is damaged.
TEST_F(Replicas, ContinueFromTheNewestCheckpointThatAllRanksHaveWhole) {
  auto whole = config("whole", 2, 2, {0, 1, 0});
  whole.max_steps = 6;
  whole.checkpoint_every = 2;
  auto parts = whole;
  parts.run_dir = folder_.file("parts");
  expect_all_well(train_as_cluster(whole));
  for (const int rank : {1, 2, 3}) {
    SCOPED_TRACE(::testing::Message() << "rank " << rank);
    ASSERT_TRUE(remove_tree(parts.run_dir));
    parts.max_steps = 4;
    parts.resume = false;
    expect_all_well(train_as_cluster(parts));
    ASSERT_EQ(Checkpoints(checkpoints_of(parts, rank)).steps(), (std::vector<std::uint64_t>{2, 4}));
    std::ofstream(checkpoints_of(parts, rank) + "/step-000000004/optimizer.safetensors") << "no tensors";
    parts.max_steps = 6;
    parts.resume = true;
    expect_all_well(train_as_cluster(parts));
    expect_equal(weights_after(whole), weights_after(parts));
    expect_equal_replicas(parts);
  }
}

TEST_F(Replicas, ContinueBitForBit) {
  auto whole = config("whole", 2, 2, {0, 1, 0});
  whole.codec = "power:2";  // its encoders have a state, another one in each replica
  whole.max_steps = 8;
  whole.checkpoint_every = 2;
  auto parts = whole;
  parts.run_dir = folder_.file("parts");
  expect_all_well(train_as_cluster(whole));
  parts.max_steps = 4;
  expect_all_well(train_as_cluster(parts));
  parts.max_steps = 8;
  parts.resume = true;
  expect_all_well(train_as_cluster(parts));
  expect_equal(weights_after(whole), weights_after(parts));
  expect_equal_replicas(whole);
  const auto first = Checkpoints(checkpoints_of(whole, 1)).load(8).encoders;
  const auto second = Checkpoints(checkpoints_of(whole, 3)).load(8).encoders;
  ASSERT_FALSE(first.empty());
  EXPECT_FALSE(torch::equal(first.begin()->second, second.begin()->second)) << "each replica encodes its own samples";
  parts.replicas = 1;
  parts.place = {0, 1, 0};
  EXPECT_NE(train_as_cluster(parts).at(0).find("--replicas: 1 here, 2 there"), std::string::npos);
}

TEST_F(Replicas, TrainLearnedCodecsToo) {
  for (const std::string codec : {"conv:4x3", "conv:4x3>sort:6+2"}) {
    auto one = config("one-" + codec.substr(8), 1, 2, {0, 1});
    auto two = config("two-" + codec.substr(8), 2, 1, {0, 1});
    one.codec = two.codec = codec;
    run(one);
    expect_all_well(train_as_cluster(two));
    expect_equal_replicas(two);
    if (codec == "conv:4x3") expect_equal(weights_after(one), weights_after(two));
  }
}

TEST_F(Replicas, ShowTheirSumsInTheTimeline) {
  auto two = config("two", 2, 2, {0});
  two.bucket = 64;
  expect_all_well(train_as_cluster(two));
  std::ifstream file(two.run_dir + "/trace.json");
  std::map<std::string, int> sums;
  const json trace = json::parse(file);
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("cat") == "all_reduce") ++sums[event.at("name")];
  }
  EXPECT_EQ(sums["bucket 0"], 5);
  EXPECT_EQ(sums["bucket 1"], 5);
  EXPECT_EQ(sums["statistics"], 5);
  EXPECT_EQ(sums["all_reduce"], 5) << "the worker's own waiting";
}

bool one_says(const Ends& ends, const std::string& text) {
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return end.find(text) != std::string::npos; });
}

TEST_F(Replicas, NameDifferencesOfTheirConfigurations) {
  for (const int other : {2, 3}) {  // the leader of replica 1, and its worker 1
    auto two = config("two", 2, 1, {0, 1});
    const auto ends = train_as_cluster(two, [other](int rank, TrainConfig& c) { c.seed = rank == other ? 7 : 5; });
    EXPECT_TRUE(one_says(ends, "--seed: 7 here, 5 there")) << ends[0];
    EXPECT_NE(ends[0].find("rank " + std::to_string(other) + " has another configuration"), std::string::npos) << ends[0];
  }
  const auto ends = train_as_cluster(config("numbers", 2, 1, {0, 1}), [](int rank, TrainConfig& c) {
    c.timeout = 5;
    if (rank == 3) c.replicas = 4, c.place = {0};
  });
  EXPECT_NE(ends[3].find("rank 0 has 2 replicas of 2 workers, rank 3 has 4 replicas of 1 workers"), std::string::npos) << ends[3];
}

TEST_F(Replicas, RefuseWhatTheyCannotShare) {
  const auto error_of = [](const TrainConfig& config) -> std::string {
    try {
      train::assemble(testing::registry(), config, {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  auto four = config("four", 4, 4, {0});
  EXPECT_EQ(error_of(four), "");
  four.batch = 15;
  EXPECT_NE(error_of(four).find("leaves one of 4 replicas 3 samples"), std::string::npos) << error_of(four);
  EXPECT_THROW(run(config("two", 2, 1, {0})), std::invalid_argument);
  EXPECT_THROW(check_ranks(config("two", 2, 1, {0, 1}), 6), std::invalid_argument);
  EXPECT_NO_THROW(check_ranks(config("two", 2, 1, {0, 1}), 4));
}

// A tensor of replica 1 has a NaN: its own error is what the client reports, and nobody waits for a gradient that does not come.
TEST_F(Replicas, EndTogetherWithTheReasonOfTheOneThatFailed) {
  auto x = torch::randn({64, 3, 8, 8});
  x[12].fill_(std::numeric_limits<float>::quiet_NaN());  // in the second half of the first batch
  const auto y = torch::zeros({64});
  ASSERT_TRUE(make_folders(folder_.file("data")).ok());
  for (const std::string part : {"train", "val"}) {
    ASSERT_TRUE(data::write_npy(folder_.file("data/" + part + "_x.npy"), x).ok());
    ASSERT_TRUE(data::write_npy(folder_.file("data/" + part + "_y.npy"), y).ok());
  }
  auto two = config("two", 2, 1, {0, 1});
  two.data = "npy:" + folder_.file("data");
  two.shuffle = false;
  const Stopwatch watch;
  const auto ends = train_as_cluster(two);
  EXPECT_NE(ends[0].find("rank 2: cut 0 forward, step 0, micro-batch 0: non_finite"), std::string::npos) << ends[0];
  EXPECT_LT(watch.seconds(), 15) << "the timeout is 20 s";
}

}  // namespace
}  // namespace epipe::train
