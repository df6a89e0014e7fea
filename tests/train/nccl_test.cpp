// nccl with one rank: all that one device can show. Two ranks need two devices.
#include <gtest/gtest.h>

#include "epipe/session/reducer.h"
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

// Gradients and statistics go through nccl and come back as they were.
TEST(Nccl, AReplicaAloneTrainsAsWithoutReplicas) {
  NEEDS_NCCL(group);
  const auto trained = [](std::unique_ptr<Group> replicas) {
    const auto model = make_model("cnn", kImages, 7);
    pipeline::PipelineConfig config;
    config.devices = {torch::Device("cuda:0")};
    config.chunks = 3;
    std::unique_ptr<session::Reducer> reducer;
    if (replicas) reducer = std::make_unique<session::Reducer>(std::move(replicas), model.layers, 1 << 10, nullptr);
    config.exchange = reducer.get();
    std::vector<torch::Tensor> state;
    pipeline::Pipeline pipeline(model.layers, config, classification_loss);
    for (std::uint64_t step = 0; step < 3; ++step) {
      pipeline.train_step(random_batch(kImages, 24, step), {0, step});
      pipeline.commit_batch();
    }
    for (const auto& layer : model.layers) {
      for (const auto& p : layer->parameters()) state.push_back(p.grad().cpu());
      for (const auto& b : layer->buffers()) state.push_back(b.cpu());
    }
    return state;
  };
  const auto alone = trained(nullptr);
  const auto summed = trained(group->subgroup({0}, "worker 0"));
  ASSERT_EQ(alone.size(), summed.size());
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(torch::allclose(alone[i], summed[i], 1e-5, 1e-6)) << i;
}

}  // namespace
}  // namespace epipe::train
