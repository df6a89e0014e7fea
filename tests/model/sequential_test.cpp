// A user's Sequential as layers over its own tensors.
#include "epipe/model/sequential.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "epipe/model/costs.h"
#include "support/model_run.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;
namespace nn = torch::nn;

// Does nothing but call its children.
struct InnerImpl : nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Inner);

// A Sequential whose forward does more.
struct ResidualImpl : nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& x) { return x + SequentialImpl::forward(x); }
};
TORCH_MODULE(Residual);

Architecture layers_of(const nn::Sequential& net) {
  return model::layers_of(net, [](const nn::SequentialImpl& nested) { return dynamic_cast<const InnerImpl*>(&nested) != nullptr; });
}

std::string refusal_of(const nn::Sequential& net) {
  try {
    layers_of(net);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// A module with a forward of its own.
struct OwnImpl : nn::Module {
  explicit OwnImpl(const nn::AnyModule& inside) : inside_(inside) { register_module("inside", inside.ptr()); }
  torch::Tensor forward(const torch::Tensor& x) { return inside_.forward(x) * 2; }
  nn::AnyModule inside_;
};
TORCH_MODULE(Own);

struct PairImpl : nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) { return {x, x}; }
};
TORCH_MODULE(Pair);

TEST(SequentialLayers, HoldTheTensorsOfTheNetUnderItsNames) {
  nn::Sequential net(nn::Linear(4, 3), Inner(nn::BatchNorm1d(3), nn::ReLU()), nn::Linear(3, 2));
  const Model model = build(layers_of(net));
  ASSERT_EQ(model.layers.size(), 3U);
  const auto tensors = tensors_of(model);
  EXPECT_EQ(tensors.size(), net->named_parameters().size() + net->named_buffers().size());
  for (const auto& item : net->named_parameters()) EXPECT_EQ(tensors.at(item.key()).data_ptr(), item.value().data_ptr()) << item.key();
  for (const auto& item : net->named_buffers()) EXPECT_EQ(tensors.at(item.key()).data_ptr(), item.value().data_ptr()) << item.key();
  EXPECT_TRUE(tensors.contains("1.0.running_mean"));
}

TEST(SequentialLayers, GiveTheNetsOutputsAndGradients) {
  torch::manual_seed(2);
  nn::Sequential net(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::ReLU(nn::ReLUOptions(true)), nn::Conv2d(4, 2, 3));
  const Model model = build(layers_of(net));
  const auto batch = random_batch(kImages, 4, 1);
  const auto y = forward(model, batch, true);
  y.square().sum().backward();
  std::vector<torch::Tensor> gradients;
  for (auto& parameter : net->parameters()) gradients.push_back(parameter.grad().clone());
  net->zero_grad();
  const auto expected = net->forward(batch.inputs[0]);
  EXPECT_TRUE(torch::equal(y, expected));
  expected.square().sum().backward();
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(torch::equal(gradients[i], net->parameters()[i].grad())) << i;
}

TEST(SequentialLayers, MoveBatchNormsStatisticsOncePerBatch) {
  nn::Sequential net(nn::BatchNorm2d(3));
  const nn::BatchNorm2d plain(3);
  const Model model = build(layers_of(net));
  const auto batch = random_batch(kImages, 6, 1);
  const auto at = context_of(batch, true);
  for (int chunk = 0; chunk < 2; ++chunk) model.layers[0]->forward({batch.inputs[0].narrow(0, 3 * chunk, 3)}, at);
  const auto mean = net->named_buffers()["0.running_mean"];
  EXPECT_TRUE(torch::equal(mean, torch::zeros({3}))) << "before the commit";
  const auto totals = model.layers[0]->batch_totals();
  EXPECT_EQ(totals.numel(), 7);
  model.layers[0]->commit_batch();
  nn::BatchNorm2d(plain)->forward(batch.inputs[0]);
  EXPECT_TRUE(torch::allclose(mean, plain->running_mean, 1e-5, 1e-7)) << "as one batch would";
  EXPECT_TRUE(torch::allclose(net->named_buffers()["0.running_var"], plain->running_var, 1e-5, 1e-6));
  EXPECT_EQ(net->named_buffers()["0.num_batches_tracked"].item<std::int64_t>(), 1);
  EXPECT_EQ(model.layers[0]->batch_totals().count_nonzero().item<std::int64_t>(), 0);
}

TEST(SequentialLayers, AddUpTheStatisticsOfReplicas) {
  nn::Sequential net(Inner(nn::BatchNorm2d(3), nn::BatchNorm2d(3)));
  nn::Sequential other(Inner(nn::BatchNorm2d(3), nn::BatchNorm2d(3)));
  const auto one = build(layers_of(net)).layers[0];
  const auto two = build(layers_of(other)).layers[0];
  const auto batch = random_batch(kImages, 6, 1);
  const auto at = context_of(batch, true);
  one->forward({batch.inputs[0].narrow(0, 0, 4)}, at);
  two->forward({batch.inputs[0].narrow(0, 4, 2)}, at);
  const auto sum = one->batch_totals() + two->batch_totals();
  for (const auto& layer : {one, two}) layer->set_batch_totals(sum);
  for (const auto& layer : {one, two}) layer->commit_batch();
  for (const auto& item : net->named_buffers()) EXPECT_TRUE(torch::equal(item.value(), other->named_buffers()[item.key()])) << item.key();
  EXPECT_GT(net->named_buffers()["0.1.running_var"].sub(1).abs().max().item<double>(), 0);
}

TEST(SequentialLayers, DropBySampleAndNotByTurn) {
  nn::Sequential net(nn::Dropout(0.5), nn::Dropout2d(0.5));
  const Model model = build(layers_of(net));
  const auto x = torch::ones({4, 8, 5, 5});
  layer::ForwardContext at;
  at.samples = {3, 4, 5, 6};
  const auto whole = model.layers[0]->forward({x}, at)[0];
  EXPECT_TRUE(torch::equal(model.layers[0]->forward({x}, at)[0], whole));
  EXPECT_EQ(whole.eq(0).logical_or(whole.eq(2)).sum().item<std::int64_t>(), whole.numel());
  auto last = at;
  last.samples = {6};
  EXPECT_TRUE(torch::equal(model.layers[0]->forward({x.narrow(0, 3, 1)}, last)[0], whole.narrow(0, 3, 1)));
  const auto channels = model.layers[1]->forward({x}, at)[0];
  EXPECT_TRUE(torch::equal(channels, channels.narrow(2, 0, 1).narrow(3, 0, 1).expand({4, 8, 5, 5}))) << "whole channels";
  EXPECT_GT(channels.eq(0).sum().item<std::int64_t>(), 0);
  EXPECT_GT(channels.eq(2).sum().item<std::int64_t>(), 0);
  at.training = false;
  EXPECT_TRUE(torch::equal(model.layers[0]->forward({x}, at)[0], x));
  EXPECT_TRUE(torch::equal(model.layers[1]->forward({x}, at)[0], x));
}

TEST(SequentialLayers, LeaveWhatTheyAreGivenAsItWas) {
  nn::Sequential net(nn::ReLU(nn::ReLUOptions(true)));
  const auto x = torch::randn({5});
  const auto before = x.clone();
  EXPECT_TRUE(torch::equal(build(layers_of(net)).layers[0]->forward({x}, {})[0], before.relu()));
  EXPECT_TRUE(torch::equal(x, before));
}

TEST(SequentialLayers, AreRefusedWhereTheyCannotBeReplaced) {
  const auto hidden = refusal_of(nn::Sequential(nn::Linear(2, 2), Own(nn::AnyModule(nn::Dropout(0.1)))));
  EXPECT_NE(hidden.find("layer 1"), std::string::npos) << hidden;
  EXPECT_NE(hidden.find("1.inside"), std::string::npos) << hidden;
  EXPECT_NE(refusal_of(nn::Sequential(Inner(Own(nn::AnyModule(nn::BatchNorm1d(2)))))).find("layer 0.0"), std::string::npos);
  EXPECT_NE(refusal_of(nn::Sequential(nn::AlphaDropout(0.1))).find("drawn by sample"), std::string::npos);
  EXPECT_NE(refusal_of(nn::Sequential(nn::RReLU())).find("drawn by sample"), std::string::npos);
  const auto cumulative = nn::BatchNormOptions(2).momentum(c10::nullopt);
  EXPECT_NE(refusal_of(nn::Sequential(nn::BatchNorm1d(cumulative))).find("momentum"), std::string::npos);
  EXPECT_NE(refusal_of(nn::Sequential(nn::BatchNorm1d(nn::BatchNormOptions(2).track_running_stats(false)))).find("statistics"),
            std::string::npos);
  EXPECT_NE(refusal_of(nn::Sequential()).find("empty"), std::string::npos);
  const nn::Linear tied(2, 2);
  EXPECT_NE(refusal_of(nn::Sequential(tied, nn::ReLU(), tied)).find("share weights"), std::string::npos);
  EXPECT_EQ(refusal_of(nn::Sequential(Own(nn::AnyModule(nn::Linear(2, 2))))), "");
  EXPECT_NE(refusal_of(nn::Sequential(Residual(nn::Linear(2, 2), nn::BatchNorm1d(2)))).find("0.1"), std::string::npos);
  const auto x = torch::randn({3, 2});
  const nn::Linear inside(2, 2);
  const Model residual = build(layers_of(nn::Sequential(Residual(inside))));
  EXPECT_TRUE(torch::equal(residual.layers[0]->forward({x}, {})[0], x + nn::Linear(inside)->forward(x))) << "its own forward is called";
  const Model pair = build(layers_of(nn::Sequential(Pair())));
  EXPECT_THROW(pair.layers[0]->forward({torch::ones({1})}, {}), std::runtime_error);
}

}  // namespace
}  // namespace epipe::model
