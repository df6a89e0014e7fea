// nccl with one rank on any CUDA machine, and with two ranks where there are two devices: nccl refuses two ranks on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "epipe/pipeline/chunks.h"
#include "epipe/session/reducer.h"
#include "epipe/transport/c10d/support.h"
#include "epipe/transport/group.h"
#include "support/cuda.h"
#include "support/training.h"

namespace epipe::train {
namespace {

using transport::Group;
using transport::Timeout;

using namespace epipe::testing;

// Null where this build has no nccl.
std::unique_ptr<Group> one_rank() {
  transport::GroupConfig config;
  config.backend = "nccl";
  try {
    return transport::make_group(config);
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find("built without nccl") == std::string::npos) throw;
    return nullptr;
  }
}

#define NEEDS_NCCL(group)        \
  EPIPE_NEEDS_CUDA();            \
  const auto group = one_rank(); \
  if (group == nullptr) GTEST_SKIP() << "needs a build with EPIPE_NCCL=ON"

TEST(Nccl, OneRankMeetsItselfAndSums) {
  NEEDS_NCCL(group);
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  EXPECT_TRUE(group->device().is_cuda());
  group->key_values().put("numbers", "1 replicas of 1 workers");
  EXPECT_EQ(group->key_values().get("numbers", Timeout(1000)), "1 replicas of 1 workers");
  auto x = torch::arange(1000, group->device()).to(torch::kFloat32);
  group->all_reduce_sum(x);
  EXPECT_TRUE(torch::equal(x.cpu(), torch::arange(1000).to(torch::kFloat32)));
}

TEST(Nccl, ASubgroupSumsAsWell) {
  NEEDS_NCCL(group);
  const auto sub = group->subgroup({0}, "worker 0");
  auto x = torch::ones({7}, torch::TensorOptions(torch::kFloat64).device(sub->device()));
  sub->all_reduce_sum(x);
  EXPECT_TRUE(torch::equal(x.cpu(), torch::ones({7}, torch::kFloat64)));
}

TEST(Nccl, RefusesTensorsOfTheCpuAndLinksToItself) {
  NEEDS_NCCL(group);
  auto x = torch::ones({7});
  EXPECT_THROW(group->all_reduce_sum(x), std::invalid_argument);
  EXPECT_THROW(group->link(0, 0), std::invalid_argument);
}

std::vector<layer::Batch> batches() {
  std::vector<layer::Batch> all;
  for (std::uint64_t step = 0; step < 3; ++step) all.push_back(random_batch(kImages, 24, step));
  return all;
}

// Gradients and BatchNorm statistics after training on a part of each batch, on the replicas' own device.
std::vector<torch::Tensor> trained_on(const std::vector<layer::Batch>& batches, const pipeline::Chunk& part, int chunks,
                                      std::unique_ptr<Group> replicas) {
  const auto model = make_model("cnn", kImages, 7);
  pipeline::PipelineConfig config;
  config.devices = {replicas ? replicas->device() : torch::Device("cuda:0")};
  config.chunks = chunks;
  std::unique_ptr<session::Reducer> reducer;
  if (replicas) reducer = std::make_unique<session::Reducer>(std::move(replicas), model.layers, 1 << 10, nullptr);
  config.exchange = reducer.get();
  std::vector<torch::Tensor> state;
  pipeline::Pipeline pipeline(model.layers, config, classification_loss);
  for (std::uint64_t step = 0; step < batches.size(); ++step) {
    pipeline::StepId id{0, step};
    id.terms = batches[step].size();
    pipeline.train_step(pipeline::slice(batches[step], part), id);
    pipeline.commit_batch();
  }
  for (const auto& layer : model.layers) {
    for (const auto& p : layer->parameters()) state.push_back(p.grad().cpu());
    for (const auto& b : layer->buffers()) state.push_back(b.cpu());
  }
  return state;
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
}

// Gradients and statistics go through nccl and come back as they were.
TEST(Nccl, AReplicaAloneTrainsAsWithoutReplicas) {
  NEEDS_NCCL(group);
  const auto all = batches();
  expect_close(trained_on(all, {0, 24}, 3, nullptr), trained_on(all, {0, 24}, 3, group->subgroup({0}, "worker 0")));
}

#define NEEDS_TWO_DEVICES() \
  NEEDS_NCCL(alone);        \
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "needs two CUDA devices: nccl refuses two ranks on one"

// Runs `work` as both ranks, each in a thread and on a device of its own. Reports what they throw.
void as_two_ranks(const std::function<void(std::unique_ptr<Group>)>& work) {
  transport::GroupConfig config;
  config.backend = "nccl";
  config.size = 2;
  config.master_port = transport::free_port();
  config.timeout = std::chrono::seconds(60);
  std::vector<std::thread> ranks;
  for (config.rank = 0; config.rank < config.size; ++config.rank) {
    config.local_rank = config.rank;
    ranks.emplace_back([&work, config] {
      try {
        work(transport::make_group(config));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << config.rank << ": " << error.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(Nccl, TwoRanksSumOnTheirOwnDevices) {
  NEEDS_TWO_DEVICES();
  as_two_ranks([](std::unique_ptr<Group> group) {
    EXPECT_EQ(group->device().index(), group->rank());
    auto x = torch::full({1001}, group->rank() == 0 ? 1.0 : 0.25, group->device());
    group->all_reduce_sum(x);
    EXPECT_TRUE(torch::equal(x.cpu(), torch::full({1001}, 1.25)));
  });
}

TEST(Nccl, ALinkCarriesBytesBothWays) {
  NEEDS_TWO_DEVICES();
  as_two_ranks([](std::unique_ptr<Group> group) {
    const auto link = group->link(1 - group->rank(), 0);
    Bytes sent(100'000);
    std::fill(sent.begin(), sent.end(), static_cast<std::byte>(1 + group->rank()));
    link->send(std::move(sent));
    const Bytes got = link->recv(Timeout(60'000));
    const auto is_theirs = [&](std::byte b) { return b == static_cast<std::byte>(2 - group->rank()); };
    EXPECT_EQ(got.size(), 100'000U);
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), is_theirs));
  });
}

TEST(Nccl, TwoReplicasTrainAsOneWithBothHalvesOfEachBatch) {
  NEEDS_TWO_DEVICES();
  const auto all = batches();
  const auto expected = trained_on(all, {0, 24}, 2, nullptr);
  as_two_ranks([&](std::unique_ptr<Group> group) {
    const std::int64_t begin = 12 * group->rank();
    expect_close(expected, trained_on(all, {begin, 12}, 1, std::move(group)));
  });
}

}  // namespace
}  // namespace epipe::train
