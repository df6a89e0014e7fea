// Sums of gradients times activations that travel beside coded gradients.
#include "epipe/pipeline/moments.h"

#include <gtest/gtest.h>

#include <limits>

#include "epipe/model/model.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;

double error(const torch::Tensor& x, const torch::Tensor& y) { return ((x - y).square().sum() / x.square().sum()).item<double>(); }

// Activations whose channels are different mixtures of smooth maps, and a gradient that has little to do with them.
struct Pair {
  torch::Tensor x, gradient;
};
Pair make_pair(std::int64_t samples, std::int64_t channels, std::int64_t edge) {
  const auto maps = torch::cumsum(torch::randn({samples, channels, edge, edge}), 3);
  const auto x = torch::relu(torch::einsum("ck,nkhw->nchw", {torch::randn({channels, channels}), maps}));
  return {x, torch::randn({samples, channels, edge, edge}) + 1e-3 * x};
}

TEST(Moments, AreSumsOfProductsAndSums) {
  torch::manual_seed(1);
  const auto [x, gradient] = make_pair(3, 5, 8);
  const auto expected = torch::einsum("nchw,nkhw->ck", {gradient.to(torch::kFloat64), x.to(torch::kFloat64)});
  const auto got = moments(gradient, x);
  EXPECT_EQ(got.sizes(), torch::IntArrayRef({5, 6}));
  EXPECT_TRUE(torch::allclose(got.narrow(1, 0, 5).to(torch::kFloat64), expected, 1e-4, 1e-3));
  EXPECT_TRUE(torch::allclose(got.narrow(1, 5, 1).squeeze(1), gradient.sum({0, 2, 3}), 1e-4, 1e-3));
  EXPECT_TRUE(torch::equal(moments(gradient.contiguous(torch::MemoryFormat::ChannelsLast), x), got));
}

TEST(Moments, ComeBackAndTakeErrorAway) {
  torch::manual_seed(2);
  const auto [x, gradient] = make_pair(4, 8, 24);
  const auto wanted = moments(gradient, x);
  const auto coarse = gradient + 0.3 * torch::randn_like(gradient) + 0.02 * x;
  const auto restored = with_moments(coarse, x, wanted);
  EXPECT_LT(error(wanted, moments(restored, x)), 1e-6);
  EXPECT_GT(error(wanted, moments(coarse, x)), 0.1) << "there would be nothing to repair";
  EXPECT_LT(error(gradient, restored), error(gradient, coarse));
}

TEST(Moments, OfActivationsThatAreNotFiniteAreLeftAlone) {
  torch::manual_seed(3);
  const auto [x, gradient] = make_pair(2, 4, 8);
  const auto nothing = torch::full_like(x, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(torch::equal(with_moments(gradient, nothing, moments(gradient, x)), gradient));
}

TEST(Moments, OfChannelsThatAreDeadOrAlikeChangeNothingElse) {
  torch::manual_seed(4);
  auto [x, gradient] = make_pair(4, 6, 16);
  x.select(1, 2).zero_();
  x.select(1, 4).copy_(x.select(1, 3));
  const auto coarse = gradient + 0.3 * torch::randn_like(gradient);
  const auto restored = with_moments(coarse, x, moments(gradient, x));
  EXPECT_TRUE(torch::isfinite(restored).all().item<bool>());
  EXPECT_LT(error(gradient, restored), error(gradient, coarse));
  const auto zeros = torch::zeros_like(x);
  EXPECT_TRUE(torch::isfinite(with_moments(coarse, zeros, moments(gradient, zeros))).all().item<bool>());
}

TEST(Moments, KeepTheTypeOfTheGradient) {
  const auto [x, gradient] = make_pair(2, 4, 8);
  const auto half = gradient.to(torch::kBFloat16);
  EXPECT_EQ(with_moments(half, x, moments(half, x)).scalar_type(), torch::kBFloat16);
}

TEST(Moments, OfOtherChannelsAreRefused) {
  const auto [x, gradient] = make_pair(2, 4, 8);
  EXPECT_THROW(with_moments(gradient, x, torch::zeros({4, 4})), std::runtime_error);
  EXPECT_THROW(with_moments(gradient, x, torch::zeros({5, 6})), std::runtime_error);
}

TEST(Moments, AreThoseOfMapsWithFewChannels) {
  EXPECT_TRUE(has_moments(torch::zeros({2, 64, 3, 3})));
  EXPECT_FALSE(has_moments(torch::zeros({2, 65, 3, 3})));
  EXPECT_FALSE(has_moments(torch::zeros({2, 64, 3})));
  EXPECT_FALSE(has_moments(torch::zeros({0, 64, 3, 3})));
  EXPECT_FALSE(has_moments(torch::zeros({2, 64, 3, 3}, torch::kInt64)));
}

// ---- through a pipeline ----

struct Step {
  std::vector<torch::Tensor> gradients;
  StepResult result;
};
Step step_of(const std::string& model_name, const std::string& codec, bool keep, bool recompute = false,
             const std::string& forward = "none") {
  const auto model = make_model(model_name, takes_text(model_name) ? kText : kImages, 7);
  PipelineConfig config;
  config.cuts = {1};
  config.codecs = {{forward, codec}};
  config.chunks = 2;
  config.moments = keep;
  config.recompute = recompute;
  Pipeline pipeline(model.layers, config, classification_loss);
  Step step;
  step.result = pipeline.train_step(random_batch(takes_text(model_name) ? kText : kImages, 24, 5), {.measure_error = true});
  for (const auto& parameter : model.layers[0]->parameters()) step.gradients.push_back(parameter.grad().clone());
  return step;
}

double total_error(const Step& exact, const Step& step) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) sum += error(exact.gradients[i], step.gradients[i]);
  return sum;
}

TEST(PipelineWithMoments, GivesTheFirstLayersBetterGradients) {
  const Step exact = step_of("cnn", "none", false);
  for (const std::string codec : {"dct:0.5", "uniform:3", "sort:3+1", "topk:0.05"}) {
    for (const bool recompute : {false, true}) {
      const double without = total_error(exact, step_of("cnn", codec, false, recompute));
      const double with = total_error(exact, step_of("cnn", codec, true, recompute));
      EXPECT_LT(with, 0.5 * without) << codec;
    }
  }
}

// They are sums over what the later stage got. With what the earlier one sent instead, they would do harm where activations are coded
// coarsely and gradients are not.
TEST(PipelineWithMoments, GivesBetterGradientsForCodedActivationsToo) {
  for (const std::string forward : {"ec:1", "uniform:3", "dct:1"}) {
    const Step exact = step_of("cnn", "none", false, false, forward);
    for (const std::string codec : {"dct:0.5", "uniform:3", "ec:1", "ec:4", "uniform:8"}) {
      for (const bool recompute : {false, true}) {
        const double without = total_error(exact, step_of("cnn", codec, false, recompute, forward));
        const double with = total_error(exact, step_of("cnn", codec, true, recompute, forward));
        EXPECT_LT(with, (codec == "ec:4" ? 0.95 : 0.8) * without) << forward << ' ' << codec;  // ec:4 leaves little to repair
      }
    }
  }
}

TEST(PipelineWithMoments, CountsTheirBytesButNotAsValues) {
  const Step without = step_of("cnn", "uniform:4", false);
  const Step with = step_of("cnn", "uniform:4", true);
  const auto& a = without.result.backward[0];
  const auto& b = with.result.backward[0];
  EXPECT_EQ(a.values, b.values);
  EXPECT_GT(b.wire_bytes, a.wire_bytes);
  EXPECT_NEAR(a.rel_error(), b.rel_error(), 1e-12) << "of what is coded";
}

TEST(PipelineWithMoments, ChangesNothingWhereNothingIsLostOrThereAreNone) {
  for (const auto& [model, codec] : {std::pair<std::string, std::string>{"cnn", "none"}, {"mlp", "uniform:4"}, {"transformer", "ec:2"}}) {
    const Step without = step_of(model, codec, false);
    const Step with = step_of(model, codec, true);
    EXPECT_EQ(without.result.backward[0].wire_bytes, with.result.backward[0].wire_bytes) << model;
    for (std::size_t i = 0; i < with.gradients.size(); ++i) EXPECT_TRUE(torch::equal(with.gradients[i], without.gradients[i])) << model;
  }
}

}  // namespace
}  // namespace epipe::pipeline
