// What epipe.h promises. Nothing else of epipe is included here.
#include "epipe/epipe.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace {

namespace nn = torch::nn;

nn::Sequential make_net(double dropout = 0) {
  torch::manual_seed(3);
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(nn::ReLUOptions(true)),
                        nn::Dropout(dropout), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).stride(2)), nn::ReLU(), nn::Flatten(),
                        nn::Linear(8 * 5 * 5, 4));
}

struct Samples {
  torch::Tensor images = torch::randn({12, 3, 12, 12});
  torch::Tensor labels = torch::randint(4, {12}, torch::kInt64);
};

std::vector<torch::Tensor> gradients_of(const nn::Sequential& net) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : net->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(Pipeline, LeavesTheGradientsOfAPlainLoopInTheNetsOwnParameters) {
  const Samples samples;
  auto plain = make_net();
  torch::set_num_threads(1);
  double loss = 0;
  for (int chunk = 0; chunk < 3; ++chunk) {
    const auto y = plain->forward(samples.images.narrow(0, 4 * chunk, 4));
    const auto sum = torch::nll_loss(torch::log_softmax(y, -1), samples.labels.narrow(0, 4 * chunk, 4), {}, torch::Reduction::Sum);
    loss += sum.item<double>() / 12;
    (sum / 12.0).backward();
  }
  for (const char* const schedule : {"gpipe", "1f1b"}) {
    for (const auto& place : std::vector<std::vector<int>>{{0, 1, 0}, {0, 1, 2}, {0, 0, 0}}) {
      auto net = make_net();
      epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {2, 5}, .place = place, .chunks = 3, .schedule = schedule});
      const auto step = pipeline.train_step(samples.images, samples.labels);
      EXPECT_NEAR(step.loss, loss, 1e-6);
      EXPECT_EQ(step.samples, 12);
      expect_equal(gradients_of(net), gradients_of(plain));
      EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 1) << "committed once";
    }
  }
}

TEST(Pipeline, CountsWhatCrossesAndCodesIt) {
  const Samples samples;
  auto net = make_net();
  epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {2, 5}, .place = {0, 1, 0}, .chunks = 4, .codec = "dct:1"});
  const auto step = pipeline.train_step(samples.images, samples.labels);
  ASSERT_EQ(step.forward.size(), 2U);
  EXPECT_EQ(step.forward[0].values, 12U * 8 * 12 * 12);
  EXPECT_LT(step.forward[0].bits_per_value(), 3);
  EXPECT_GT(step.forward[0].wire_bytes, 100U);
  EXPECT_EQ(step.backward[0].values, step.forward[0].values);
}

TEST(Pipeline, TakesAutoForTwoBits) {
  const Samples samples;
  const auto bytes_with = [&](const std::string& codec) {
    auto net = make_net();
    epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {2, 5}, .codec = codec});
    const auto step = pipeline.train_step(samples.images, samples.labels);
    return std::vector{step.forward[0].wire_bytes, step.backward[0].wire_bytes, step.forward[1].wire_bytes, step.backward[1].wire_bytes};
  };
  EXPECT_EQ(bytes_with("auto"), bytes_with("auto:2"));
  EXPECT_NE(bytes_with("auto"), bytes_with("auto:1"));
}

TEST(Pipeline, TakesALossOfOnesOwnAndOtherCodecsByDirection) {
  const Samples samples;
  auto net = make_net();
  const auto squares = [](const torch::Tensor& y, const torch::Tensor&) -> epipe::LossResult { return {y.square().sum()}; };
  epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {4}, .codec = "none", .codec_backward = "fp16", .loss = squares});
  const auto step = pipeline.train_step(samples.images, samples.labels);
  EXPECT_GT(step.forward[0].wire_bytes, 32 * step.forward[0].values / 8);
  EXPECT_LT(step.backward[0].wire_bytes, 24 * step.backward[0].values / 8);
  const auto result = pipeline.evaluate(samples.images, samples.labels);
  EXPECT_NEAR(result.loss, result.predictions.square().sum().item<double>() / 12, 1e-4) << "predictions are the outputs";
}

TEST(Pipeline, ContinuesFromItsStateAsIfItHadNeverStopped) {
  const Samples samples;
  const auto train = [&](bool stop) {
    auto net = make_net(0.3);
    const epipe::PipelineOptions options{.cuts = {2, 5}, .place = {0, 1, 0}, .chunks = 2, .codec = "power:2", .seed = 5};
    auto pipeline = std::make_unique<epipe::Pipeline>(epipe::layers(net), options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int i = 0; i < 4; ++i) {
      if (stop && i == 2) {
        const auto state = pipeline->state();
        EXPECT_EQ(state.steps, 2U);
        EXPECT_FALSE(state.encoders.empty());
        pipeline = std::make_unique<epipe::Pipeline>(epipe::layers(net), options);
        pipeline->set_state(state);
      }
      pipeline->train_step(samples.images, samples.labels);
      optimizer.step();
    }
    std::vector<torch::Tensor> weights = net->parameters();
    return weights;
  };
  const auto whole = train(false);
  expect_equal(train(true), whole);
}

TEST(Pipeline, EvaluatesInEvaluationModeAndChangesNothing) {
  const Samples samples;
  auto net = make_net(0.5);
  epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {4}, .chunks = 2});
  std::vector<torch::Tensor> before;
  for (const auto& buffer : net->buffers()) before.push_back(buffer.clone());
  const auto result = pipeline.evaluate(samples.images, samples.labels);
  net->eval();
  EXPECT_TRUE(torch::allclose(result.predictions, net->forward(samples.images), 1e-5, 1e-6));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], net->buffers()[i]));
  EXPECT_EQ(pipeline.state().steps, 0U);
}

TEST(Layers, WalkNestedSequentials) {
  nn::Sequential net(nn::Conv2d(3, 4, 3), epipe::Nested(nn::BatchNorm2d(4), epipe::Nested(nn::ReLU(), nn::Dropout(0.1))));
  const auto layers = epipe::layers(net);
  EXPECT_EQ(layers.names(), (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(net->named_buffers().contains("1.0.running_mean"));
}

TEST(Pipeline, RefusesWhatMakesNoSense) {
  auto net = make_net();
  const auto layers = epipe::layers(net);
  EXPECT_EQ(layers.size(), 8U);
  EXPECT_EQ(layers.names().at(7), "7");
  EXPECT_THROW(epipe::Pipeline(layers, {.cuts = {9}}), std::invalid_argument);
  EXPECT_THROW(epipe::Pipeline(layers, {.cuts = {2}, .codec = "conv:8x2"}), std::invalid_argument);
  EXPECT_THROW(epipe::Pipeline(layers, {.cuts = {2}, .codec = "nonsense"}), std::invalid_argument);
  EXPECT_THROW(epipe::Pipeline(layers, {.cuts = {2}, .schedule = "fastest"}), std::invalid_argument);
  epipe::Pipeline pipeline(layers, {.cuts = {2}});
  EXPECT_THROW(pipeline.train_step(epipe::Batch{}), std::invalid_argument);
  const Samples samples;
  EXPECT_THROW(pipeline.train_step({.inputs = {samples.images}, .targets = samples.labels, .samples = {1, 2}}), std::invalid_argument);
}

TEST(Codec, GivesBackWhatItEncoded) {
  const auto x = torch::randn({8, 32, 32});
  epipe::Codec none("none");
  EXPECT_EQ(none.spec(), "none");
  const auto frame = none.encode(x);
  EXPECT_TRUE(torch::equal(epipe::decode(frame), x));
  auto coded = epipe::Codec("ec:4", 2).encode(x);
  EXPECT_LT(coded.size(), frame.size() / 6);
  EXPECT_LT((epipe::decode(coded) - x).square().sum().item<double>(), 0.1 * x.square().sum().item<double>());
  coded.back() ^= std::byte{1};
  EXPECT_THROW(epipe::decode(coded), std::invalid_argument);
  EXPECT_THROW(epipe::decode(frame, 16), std::invalid_argument) << "larger than allowed";
  EXPECT_THROW(epipe::Codec("ec:"), std::invalid_argument);
  EXPECT_THROW(none.encode(torch::full({2}, std::nan(""))), std::invalid_argument);
}

TEST(Codec, KeepsItsStateFromTensorToTensor) {
  const auto x = torch::randn({16, 16});
  epipe::Codec codec("power:2");
  codec.encode(x);
  const auto state = codec.state();
  ASSERT_FALSE(state.empty());
  const auto second = codec.encode(x);
  epipe::Codec other("power:2");
  EXPECT_NE(other.encode(x), second);
  other.set_state(state);
  EXPECT_EQ(other.encode(x), second);
}

TEST(Registry, KnowsWhatIsAddedAndCopiesOfItDoToo) {
  epipe::Registry models = epipe::builtin_models();
  const auto factory = [](const epipe::DataSpec&) { return epipe::layers(make_net()); };
  models.add("mynet", factory);
  EXPECT_THROW(models.add("mynet", factory), std::invalid_argument);
  EXPECT_THROW(models.add("cnn", factory), std::invalid_argument);
  EXPECT_THROW(models.add("other", nullptr), std::invalid_argument);
  const auto known = [](const epipe::Registry& registry) {
    const auto names = registry.models();
    return std::count(names.begin(), names.end(), "mynet") == 1;
  };
  const epipe::Registry copy = models;
  EXPECT_TRUE(known(models) && known(copy));
  EXPECT_FALSE(known(epipe::builtin_models()));
  EXPECT_TRUE(epipe::Registry().models().empty());
  const auto open = [](const std::string&) { return epipe::Datasets{}; };
  models.add_dataset("mine", open);
  for (const char* const taken : {"mine", "cifar10", "synthetic", "glue", "", "a:b"}) {
    EXPECT_THROW(models.add_dataset(taken, open), std::invalid_argument) << taken;
  }
  const auto loss = [](const torch::Tensor& y, const torch::Tensor&) -> epipe::LossResult { return {y.sum()}; };
  models.add_loss("mine", loss);
  for (const char* const taken : {"mine", "auto", ""}) EXPECT_THROW(models.add_loss(taken, loss), std::invalid_argument) << taken;
}

}  // namespace
