#include "epipe/layer/memory_format.h"

#include <gtest/gtest.h>

#include "epipe/model/safetensors.h"
#include "epipe/train/optimizer.h"
#include "support/training.h"

namespace epipe::layer {
namespace {

using namespace epipe::testing;

std::map<std::string, torch::Tensor> weights_of(const model::Model& model) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) all[layer->full_name(item.key())] = item.value().detach();
  }
  return all;
}

Tensors forward(const model::Model& model, Tensors x, bool in_channels_last) {
  ForwardContext at;
  at.samples = {0, 1, 2, 3};
  for (const auto& layer : model.layers) x = layer->forward(in_channels_last ? channels_last(x) : x, at);
  return x;
}

TEST(ChannelsLast, ChangesStridesAndNothingElse) {
  const auto x = torch::randn({2, 3, 4, 5});
  const auto matrix = torch::randn({2, 3});
  const auto converted = channels_last({x, matrix});
  EXPECT_TRUE(torch::equal(converted[0], x));
  EXPECT_EQ(converted[0].stride(1), 1);
  EXPECT_TRUE(converted[1].is_same(matrix));
  EXPECT_TRUE(channels_last(converted)[0].is_same(converted[0])) << "nothing to do, nothing copied";
}

TEST(ChannelsLast, ComputesTheSameWithinRounding) {
  const auto plain = make_model("cnn", kImages, 7);
  const auto model = make_model("cnn", kImages, 7);
  for (const auto& layer : model.layers) to_channels_last(*layer);
  const auto x = torch::randn({4, 3, 12, 12});
  const auto expected = forward(plain, {x}, false)[0];
  const auto actual = forward(model, {x}, true)[0];
  EXPECT_TRUE(torch::allclose(actual, expected, 1e-4, 1e-5));
  expected.square().sum().backward();
  actual.square().sum().backward();
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const auto left = plain.layers[l]->parameters();
    const auto right = model.layers[l]->parameters();
    for (std::size_t k = 0; k < left.size(); ++k)
      EXPECT_TRUE(torch::allclose(right[k].grad(), left[k].grad(), 1e-3, 1e-4)) << l << " " << k;
  }
}

TEST(ChannelsLast, WeightsStayTheParametersOfTheirOptimizerAndTheirBytesInFiles) {
  const auto model = make_model("cnn", kImages, 7);
  const auto before = model::serialize_safetensors(weights_of(model));
  train::NamedParameters held;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) held.emplace_back(layer->full_name(item.key()), item.value());
  }
  int converted = 0;
  for (const auto& layer : model.layers) {
    to_channels_last(*layer);
    for (const auto& p : layer->parameters()) converted += p.dim() == 4 && !p.is_contiguous() ? 1 : 0;
  }
  EXPECT_GT(converted, 0);
  const auto after = model::serialize_safetensors(weights_of(model));
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(before.value(), after.value());
  forward(model, {torch::randn({4, 3, 12, 12})}, true)[0].square().sum().backward();
  train::Optimizer({}, held).step(0.1);
  EXPECT_NE(model::serialize_safetensors(weights_of(model)).value(), before.value()) << "the optimizer holds the same parameters";
}

}  // namespace
}  // namespace epipe::layer
