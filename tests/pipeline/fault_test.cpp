// A stage that throws ends the run at once, with its own error, and nobody hangs.
#include <gtest/gtest.h>

#include "epipe/base/clock.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;

// Passes tensors on, and throws at one micro-batch, forward or backward.
class Throws final : public Layer {
 public:
  Throws(const std::string& name, std::int64_t sample, bool in_backward) : Layer(name), sample_(sample), in_backward_(in_backward) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const bool now = std::find(at.samples.begin(), at.samples.end(), sample_) != at.samples.end();
    if (now && !in_backward_) throw std::runtime_error("layer " + name() + " broke");
    auto y = in[0] * 1;
    if (now && y.requires_grad()) {
      y.register_hook([](const torch::Tensor& g) -> torch::Tensor {
        throw std::runtime_error("backward broke");
        return g;
      });
    }
    return {y};
  }
  double flops(const Tensors&, const Tensors&) const override { return 1; }

 private:
  std::int64_t sample_;
  bool in_backward_;
};

TEST(Fault, AStageThatThrowsStopsAllWorkersWithinASecond) {
  for (const std::string& schedule : schedule::schedule_names()) {
    for (std::size_t at_layer = 0; at_layer <= 4; ++at_layer) {
      for (const std::int64_t sample : {0, 5, 11}) {
        for (const bool in_backward : {false, true}) {
          auto model = make_model("mlp", kImages, 7);
          model.layers.insert(model.layers.begin() + static_cast<std::ptrdiff_t>(at_layer),
                              std::make_shared<Throws>("bad", sample, in_backward && at_layer > 0));
          PipelineConfig config;
          config.cuts = {1, 2, 3};
          config.placement = {{0, 1, 2, schedule == "zb-h1" ? 3 : 0}};
          config.schedule = schedule;
          config.chunks = 6;
          Pipeline pipeline(model.layers, config, classification_loss);
          const Stopwatch watch;
          try {
            pipeline.train_step(random_batch(kImages, 12, 1), {});
            FAIL() << "layer " << at_layer << " sample " << sample;
          } catch (const std::exception& error) {
            EXPECT_NE(std::string(error.what()).find("broke"), std::string::npos) << error.what();
          }
          EXPECT_LT(watch.seconds(), 1);
          EXPECT_ANY_THROW(pipeline.train_step(random_batch(kImages, 12, 1), {0, 1})) << "a pipeline that threw is over";
        }
      }
    }
  }
}

TEST(Fault, NanInACutNamesCutStepAndMicroBatch) {
  const auto model = make_model("mlp", kImages, 7);
  PipelineConfig config;
  config.cuts = {2};
  config.chunks = 3;
  config.codecs = {{"sort:6+2", "none"}};
  Pipeline pipeline(model.layers, config, classification_loss);
  auto batch = random_batch(kImages, 6, 1);
  batch.inputs[0][4].fill_(std::numeric_limits<float>::quiet_NaN());  // the third micro-batch
  try {
    pipeline.train_step(batch, {0, 17});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("cut 0 forward, step 17, micro-batch 2: non_finite"), std::string::npos) << error.what();
  }
}

TEST(Fault, AFailureInAWorkersTaskIsReported) {
  const auto model = make_model("mlp", kImages, 7);
  PipelineConfig config;
  config.cuts = {2};
  Pipeline pipeline(model.layers, config, classification_loss);
  EXPECT_THROW(pipeline.on_workers([](int worker, const auto&) {
    if (worker == 1) throw std::runtime_error("optimizer");
  }),
               std::runtime_error);
}

}  // namespace
}  // namespace epipe::pipeline
