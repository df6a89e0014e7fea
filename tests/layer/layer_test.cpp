#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/modules.h"
#include "epipe/layer/random.h"
#include "support/training.h"

namespace epipe::layer {
namespace {

using namespace epipe::testing;

TEST(DeferredBatchNorm, TakesTheStatisticsOfTheWholeBatchWhateverTheChunks) {
  torch::manual_seed(1);
  const auto x = torch::randn({12, 5, 6, 7}) * 3 + 2;
  auto mean = torch::zeros({5});
  auto variance = torch::ones({5});
  torch::batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
  for (const int chunks : {1, 2, 5, 12}) {
    DeferredBatchNorm norm(5);
    for (const auto& part : x.tensor_split(chunks)) norm.forward(part, {});
    EXPECT_TRUE(torch::equal(norm.running_mean, torch::zeros({5}))) << "nothing changes before the batch is complete";
    norm.commit_batch();
    EXPECT_TRUE(torch::allclose(norm.running_mean, mean, 1e-6, 1e-6)) << chunks;
    EXPECT_TRUE(torch::allclose(norm.running_var, variance, 1e-6, 1e-6)) << chunks;
    EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 1);
  }
}

TEST(DeferredBatchNorm, NormalizesLikePyTorch) {
  torch::manual_seed(2);
  const auto x = torch::randn({4, 3, 5, 5});
  DeferredBatchNorm norm(3);
  const auto expected = torch::batch_norm(x, norm.weight, norm.bias, {}, {}, true, 0.1, 1e-5, false);
  EXPECT_TRUE(torch::equal(norm.forward(x, {}), expected));
  norm.commit_batch();
  ForwardContext evaluation;
  evaluation.training = false;
  const auto y = norm.forward(x, evaluation);
  const auto by_hand = (x - norm.running_mean.view({1, 3, 1, 1})) / (norm.running_var.view({1, 3, 1, 1}) + 1e-5).sqrt();
  EXPECT_TRUE(torch::allclose(y, by_hand, 1e-5, 1e-6));
}

TEST(DeferredBatchNorm, MovesItsStatisticsWithEveryForwardWhereNothingIsPipelined) {
  torch::manual_seed(2);
  DeferredBatchNorm norm(3);
  torch::nn::BatchNorm2d expected(3);
  ForwardContext at;
  at.pipelined = false;
  for (int i = 0; i < 2; ++i) {
    const auto x = torch::randn({4, 3, 5, 5}) * 3 + i;
    EXPECT_TRUE(torch::equal(norm.forward(x, at), expected->forward(x)));
  }
  EXPECT_TRUE(torch::equal(norm.running_mean, expected->running_mean));
  EXPECT_TRUE(torch::equal(norm.running_var, expected->running_var));
  EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 2);
  norm.commit_batch();
  EXPECT_TRUE(torch::equal(norm.running_mean, expected->running_mean)) << "nothing is left to commit";
}

TEST(DeferredBatchNorm, TakesTheStatisticsOfAllReplicasFromTheSumOfTheirTotals) {
  torch::manual_seed(3);
  const auto x = torch::randn({12, 5, 6, 7}) * 3 + 2;
  DeferredBatchNorm alone(5);
  std::vector<DeferredBatchNorm> replicas = {DeferredBatchNorm(5), DeferredBatchNorm(5), DeferredBatchNorm(5)};  // the last sees nothing
  for (const auto& part : x.tensor_split(2)) alone.forward(part, {});
  replicas[0].forward(x.narrow(0, 0, 6), {});
  replicas[1].forward(x.narrow(0, 6, 6), {});
  auto totals = replicas[0].batch_totals() + replicas[1].batch_totals() + replicas[2].batch_totals();
  alone.commit_batch();
  for (auto& replica : replicas) {
    replica.set_batch_totals(totals);
    replica.commit_batch();
    EXPECT_TRUE(torch::equal(replica.running_mean, alone.running_mean));
    EXPECT_TRUE(torch::equal(replica.running_var, alone.running_var));
  }
}

TEST(DeferredBatchNorm, CommitsTogetherToTheBitsOfOneByOne) {
  torch::manual_seed(4);
  const auto make = [] {
    std::vector<std::unique_ptr<DeferredBatchNorm>> norms;
    for (const std::int64_t channels : {5, 17, 3, 64, 1}) norms.push_back(std::make_unique<DeferredBatchNorm>(channels));
    norms.push_back(std::make_unique<DeferredBatchNorm>(7, 1e-3));
    norms.push_back(std::make_unique<DeferredBatchNorm>(9, 1e-5, 0.3));
    norms.push_back(std::make_unique<DeferredBatchNorm>(2));  // sees nothing
    return norms;
  };
  const auto together = make();
  const auto alone = make();
  std::vector<DeferredBatchNorm*> all;
  for (std::size_t k = 0; k < together.size(); ++k) {
    all.push_back(together[k].get());
    for (int part = 0; part < (k + 1 < together.size() ? 3 : 0); ++part) {
      if (k == 2 && part == 2) continue;  // one micro-batch less than its neighbours
      const auto x = torch::randn({4 + part, together[k]->running_mean.numel(), 3, 5}) * 3 + 2;
      together[k]->forward(x, {});
      alone[k]->forward(x, {});
    }
  }
  DeferredBatchNorm::commit_together(all);
  for (std::size_t k = 0; k < together.size(); ++k) {
    alone[k]->commit_batch();
    EXPECT_TRUE(torch::equal(together[k]->running_mean, alone[k]->running_mean)) << k;
    EXPECT_TRUE(torch::equal(together[k]->running_var, alone[k]->running_var)) << k;
    EXPECT_TRUE(torch::equal(together[k]->num_batches_tracked, alone[k]->num_batches_tracked)) << k;
  }
  EXPECT_EQ(together.back()->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST(DeferredBatchNorm, CountsAMicroBatchOnceUnderRecomputeAndNotWhenDiscarded) {
  const auto x = torch::randn({4, 3, 5, 5});
  DeferredBatchNorm once(3);
  DeferredBatchNorm twice(3);
  ForwardContext again;
  again.recompute = true;
  once.forward(x, {});
  twice.forward(x, {});
  twice.forward(x * 9, again);
  once.commit_batch();
  twice.commit_batch();
  EXPECT_TRUE(torch::equal(once.running_mean, twice.running_mean));

  const auto before = once.running_mean.clone();
  once.forward(x, {});
  once.discard_batch();
  once.commit_batch();
  EXPECT_TRUE(torch::equal(once.running_mean, before));
}

TEST(Initialization, DependsOnTheSeedAndTheNameOnly) {
  const auto a = make_model("cnn", kImages, 1);
  const auto b = make_model("cnn", kImages, 1);
  const auto c = make_model("cnn", kImages, 2);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const auto parameters = a.layers[i]->named_parameters();
    for (const auto& item : parameters) {
      EXPECT_TRUE(torch::equal(b.layers[i]->named_parameters()[item.key()], item.value()));
      if (item.value().dim() < 2) continue;
      EXPECT_FALSE(torch::equal(c.layers[i]->named_parameters()[item.key()], item.value())) << item.key();
      const double bound = 1 / std::sqrt(static_cast<double>(item.value().numel() / item.value().size(0)));
      EXPECT_LE(item.value().abs().max().item<double>(), bound);
      EXPECT_NEAR(item.value().std().item<double>(), bound / std::sqrt(3.0), 0.15 * bound);
    }
  }
}

TEST(Random, NormalValuesHaveTheMomentsAsked) {
  auto x = torch::empty({100'000});
  fill_normal(x, 2, 5);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(x.std().item<double>(), 2, 0.03);
  EXPECT_TRUE(torch::isfinite(x).all().item<bool>());
}

TEST(Models, FitTheDataAndHaveAtLeastFourLayers) {
  for (const std::string& name : registry().models.names()) {
    if (name.find(':') != std::string::npos) continue;  // made from files; tests/model has them
    data::DataSpec data = takes_text(name) ? kText : kImages;
    if (name == "vgg13") data.shape = {3, 32, 32};
    const auto model = make_model(name, data, 1);
    EXPECT_GE(model.layers.size(), 4U);
    const auto batch = random_batch(data, 3, 1);
    ForwardContext at;
    at.samples = batch.samples;
    at.side = batch.side;
    Tensors x = batch.inputs;
    std::set<std::string> names;
    for (const auto& layer : model.layers) {
      EXPECT_TRUE(names.insert(layer->name()).second) << layer->name();
      const Tensors y = layer->forward(x, at);
      EXPECT_GT(layer->flops(x, y), 0);
      x = y;
    }
    EXPECT_EQ(x[0].sizes(), torch::IntArrayRef({3, data.classes})) << name;
  }
  EXPECT_THROW(make_model("resnet", kImages, 1), std::invalid_argument);
  EXPECT_ANY_THROW(make_model("cnn", kText, 1));
}

// Tokens behind the mask must not matter.
TEST(Models, TheTransformerIgnoresMaskedTokens) {
  const auto model = make_model("transformer", kText, 1);
  auto batch = random_batch(kText, 4, 1);
  const auto logits = [&] {
    ForwardContext at;
    at.training = false;
    at.samples = batch.samples;
    at.side = batch.side;
    Tensors x = batch.inputs;
    for (const auto& layer : model.layers) x = layer->forward(x, at);
    return x[0];
  };
  const auto before = logits();
  batch.inputs[0] = torch::where(batch.side[0] == 0, torch::full_like(batch.inputs[0], 7), batch.inputs[0]);
  EXPECT_TRUE(torch::allclose(logits(), before, 1e-5, 1e-6));
}

}  // namespace
}  // namespace epipe::layer
