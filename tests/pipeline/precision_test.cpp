// Mixed precision and loss scaling.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tuple>

#include "epipe/layer/modules.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;
using layer::Autocast;
using layer::CastScope;
using layer::Precision;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Passes tensors on; the gradient of the micro-batch that holds `sample` becomes Inf in one place.
class Overflows final : public Layer {
 public:
  Overflows(const std::string& name, std::int64_t sample) : Layer(name), sample_(sample) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    auto y = in[0] * 1;
    if (y.requires_grad() && std::find(at.samples.begin(), at.samples.end(), sample_) != at.samples.end()) {
      y.register_hook([](const torch::Tensor& g) {
        auto bad = g.clone();
        bad.view(-1)[0] = kInfinity;
        return bad;
      });
    }
    return {y};
  }
  double flops(const Tensors&, const Tensors&) const override { return 1; }

 private:
  std::int64_t sample_;
};

std::vector<torch::Tensor> gradients_of(const model::Model& model) {
  std::vector<torch::Tensor> all;
  for (const auto& layer : model.layers) {
    for (const auto& p : layer->parameters()) all.push_back(p.grad().clone());
  }
  return all;
}

void descend(const model::Model& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& layer : model.layers) {
    for (auto& p : layer->parameters()) p.sub_(p.grad(), 0.1);
  }
}

TEST(Autocast, ComputesInTheTypeWhileItLivesAndNotAfter) {
  const auto x = torch::ones({2, 2});
  {
    const Autocast autocast(torch::kCPU, Precision::kBf16, false);
    EXPECT_EQ(torch::matmul(x, x).scalar_type(), torch::kBFloat16);
    const Autocast nothing(torch::kCPU, Precision::kFp32, false);
    EXPECT_EQ(torch::matmul(x, x).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(torch::matmul(x, x).scalar_type(), torch::kFloat32);
}

TEST(Autocast, KeptCastsGiveTheGradientsOfFreshOnes) {
  const auto gradient = [](bool keep) {
    torch::manual_seed(3);
    const CastScope casts;
    auto w = torch::randn({8, 8}).requires_grad_();
    for (int i = 0; i < 3; ++i) {  // micro-batches
      torch::Tensor y;
      {
        const Autocast autocast(torch::kCPU, Precision::kBf16, keep);
        y = torch::matmul(torch::randn({5, 8}), w);
      }
      y.to(torch::kFloat32).square().sum().backward();
    }
    return w.grad().clone();
  };
  EXPECT_TRUE(torch::equal(gradient(true), gradient(false)));
}

TEST(Autocast, AScopeForgetsTheCastsOfOldWeights) {
  auto w = torch::ones({2, 2}).requires_grad_();
  const auto product = [&] {
    const Autocast autocast(torch::kCPU, Precision::kBf16, true);
    return torch::matmul(torch::ones({1, 2}), w)[0][0].item<float>();
  };
  {
    const CastScope casts;
    EXPECT_EQ(product(), 2);
    const torch::NoGradGuard no_grad;
    w.fill_(3);
    EXPECT_EQ(product(), 2) << "within a step a cast is made once";
  }
  EXPECT_EQ(product(), 6);
  const CastScope forget;
}

// One stage against LibTorch alone.
TEST(MixedPrecision, OneStageEqualsAPlainAutocastLoop) {
  at::set_num_threads(1);  // as many as a worker has: sums of products depend on it
  for (const std::string name : {"cnn", "transformer"}) {
    const auto& data = name == "cnn" ? kImages : kText;
    const auto plain = make_model(name, data, 7);
    const auto model = make_model(name, data, 7);
    PipelineConfig config;
    config.precision = Precision::kBf16;
    config.seed = 11;
    Pipeline pipeline(model.layers, config, classification_loss);
    for (std::uint64_t step = 0; step < 4; ++step) {
      const auto batch = random_batch(data, 8, step);
      ForwardContext at;
      at.seed = 11;
      at.step = step;
      at.samples = batch.samples;
      at.side = batch.side;
      layer::Tensors x = batch.inputs;
      for (const auto& layer : plain.layers) layer->zero_grad();
      {
        const CastScope casts;
        const Autocast autocast(torch::kCPU, Precision::kBf16, true);
        for (const auto& layer : plain.layers) x = layer->forward(x, at);
      }
      const auto loss = torch::nll_loss(torch::log_softmax(x[0].to(torch::kFloat32), -1), batch.targets, {}, at::Reduction::Sum) / 8;
      loss.backward();
      EXPECT_EQ(pipeline.train_step(batch, {0, step}).loss, loss.item<double>()) << name << " step " << step;
      const auto expected = gradients_of(plain);
      const auto actual = gradients_of(model);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        EXPECT_TRUE(torch::equal(actual[k], expected[k])) << name << " parameter " << k;
        EXPECT_EQ(actual[k].scalar_type(), torch::kFloat32);
      }
      descend(plain);
      descend(model);
      pipeline.commit_batch();
    }
  }
}

TEST(MixedPrecision, HalfTensorsCross16BitsPerValue) {
  const auto losses = [](Precision precision, double& bits) {
    const auto model = make_model("cnn", kImages, 7);
    PipelineConfig config;
    config.cuts = {1, 3};
    config.placement = {{0, 1, 0}};
    config.precision = precision;
    config.chunks = 2;
    Pipeline pipeline(model.layers, config, classification_loss);
    const auto result = pipeline.train_step(random_batch(kImages, 16, 1), {});
    bits = result.forward[0].bits_per_value();
    EXPECT_EQ(result.forward[0].values, result.backward[0].values);
    EXPECT_EQ(result.forward[0].wire_bytes, result.backward[0].wire_bytes);
    return result.loss;
  };
  double full = 0;
  double half = 0;
  EXPECT_NE(losses(Precision::kFp32, full), losses(Precision::kBf16, half)) << "mixed precision must round somewhere";
  EXPECT_NEAR(full, 32, 0.1);
  EXPECT_NEAR(half, 16, 0.1);
}

TEST(MixedPrecision, LossyCodecsTakeHalfTensors) {
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.cuts = {1, 3};
  config.placement = {{0, 1, 0}};
  config.precision = Precision::kBf16;
  config.codecs = {{"uniform:8", "sort:6+2"}, {"topk:0.25", "ec:4"}};
  Pipeline pipeline(model.layers, config, classification_loss);
  const auto result = pipeline.train_step(random_batch(kImages, 16, 1), {.measure_error = true});
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_GT(result.forward[0].rel_error(), 0);
  EXPECT_NEAR(result.forward[0].bits_per_value(), 8, 0.2);
}

TEST(MixedPrecision, APrecisionThatTheDeviceCannotDoIsRefused) {
  if (layer::can_compute(torch::kCPU, Precision::kFp16)) GTEST_SKIP() << "this LibTorch computes in fp16 on the CPU";
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.precision = Precision::kFp16;
  try {
    const Pipeline pipeline(model.layers, config, classification_loss);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "worker 0 is on cpu, where this LibTorch does not compute in fp16; use --precision bf16 or fp32");
  }
}

TEST(LossScaling, ScalesGradientsAndNothingElse) {
  const auto step = [](double scale, const std::string& schedule) {
    const auto model = make_model("cnn", kImages, 7);
    PipelineConfig config;
    config.cuts = {2};
    config.schedule = schedule;
    config.chunks = 3;
    Pipeline pipeline(model.layers, config, classification_loss);
    const auto result = pipeline.train_step(random_batch(kImages, 10, 1), {.loss_scale = scale});
    return std::pair{result.loss, gradients_of(model)};
  };
  const auto [loss, gradients] = step(1, "gpipe");
  for (const std::string& schedule : schedule::schedule_names()) {
    const auto [same_loss, scaled] = step(1024, schedule);
    EXPECT_EQ(loss, same_loss);
    for (std::size_t k = 0; k < gradients.size(); ++k) EXPECT_TRUE(torch::equal(gradients[k] * 1024, scaled[k])) << schedule << " " << k;
  }
}

TEST(LossScaling, AnOverflowIsFoundWhereverItHappensAndThePipelineGoesOn) {
  for (const auto& [schedule, last, at_layer] : std::vector<std::tuple<std::string, int, std::size_t>>{
           {"gpipe", 0, 1}, {"gpipe", 0, 2}, {"gpipe", 0, 3}, {"gpipe", 0, 4}, {"zb-h1", 3, 2}, {"zb-h1", 3, 4}}) {
    for (const bool in_forward : {false, true}) {
      auto model = make_model("cnn", kImages, 7);
      model.layers.insert(model.layers.begin() + static_cast<std::ptrdiff_t>(at_layer), std::make_shared<Overflows>("bad", 5));
      PipelineConfig config;
      config.cuts = {1, 2, 4};
      config.placement = {{0, 1, 2, last}};
      config.schedule = schedule;
      config.chunks = 4;
      config.loss_scaling = true;
      config.codecs = {{"sort:6+2", "uniform:8"}, {"power:2", "power:2"}, {"none", "ec:4"}};
      Pipeline pipeline(model.layers, config, classification_loss);
      auto batch = random_batch(kImages, 8, 1);
      if (in_forward) {
        for (auto& sample : batch.samples) sample += 100;
        batch.inputs[0][3][0][0][0] = kInfinity;
      }
      EXPECT_TRUE(pipeline.train_step(batch, {0, 0, 0, true}).non_finite) << at_layer;
      pipeline.discard_batch();
      const auto next = pipeline.train_step(random_batch(kImages, 8, 2, 50), {0, 1});
      EXPECT_FALSE(next.non_finite);
      EXPECT_TRUE(std::isfinite(next.loss));
    }
  }
}

TEST(LossScaling, WithoutItAnOverflowAtACutIsAnError) {
  auto model = make_model("cnn", kImages, 7);
  model.layers.insert(model.layers.begin() + 3, std::make_shared<Overflows>("bad", 5));
  PipelineConfig config;
  config.cuts = {2, 3};
  config.chunks = 4;
  Pipeline pipeline(model.layers, config, classification_loss);
  try {
    pipeline.train_step(random_batch(kImages, 8, 1), {0, 6});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("cut 1 backward, step 6, micro-batch 2: non_finite"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace epipe::pipeline
