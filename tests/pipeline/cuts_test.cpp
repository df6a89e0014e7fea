// Cuts that carry several tensors, and tensors that only some layers use.
#include <gtest/gtest.h>

#include "epipe/layer/modules.h"
#include "epipe/model/costs.h"
#include "epipe/pipeline/chunks.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;

// Takes the last tensor through a linear layer, and keeps those before for later layers: skip connections.
class Fork final : public Layer {
 public:
  Fork(const std::string& name, std::int64_t in, bool keep, bool join)
      : Layer(name), linear_(register_module("linear", std::make_shared<layer::Linear>(in, 8))), keep_(keep), join_(join) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    auto y = torch::tanh(linear_->forward(in.back().flatten(1), at));
    if (join_) {
      for (std::size_t k = 0; k + 1 < in.size(); ++k) y = y + in[k];
      return {y};
    }
    Tensors out(in.begin(), in.end() - 1);
    if (keep_) out.push_back(y);
    out.push_back(y * 0.5);
    return out;
  }
  double flops(const Tensors& in, const Tensors&) const override { return linear_->flops(in[0].size(0)); }

 private:
  std::shared_ptr<layer::Linear> linear_;
  bool keep_;
  bool join_;
};

std::vector<std::shared_ptr<Layer>> skip_layers() {
  std::vector<std::shared_ptr<Layer>> layers = {
      std::make_shared<Fork>("a", 3 * 12 * 12, true, false),  // out: skip a, x
      std::make_shared<Fork>("b", 8, true, false),            // out: skip a, skip b, x
      std::make_shared<Fork>("c", 8, false, false),           // the same two go on
      std::make_shared<Fork>("d", 8, false, true),            // joins all
  };
  for (const auto& layer : layers) layer->initialize(3);
  return layers;
}

std::vector<torch::Tensor> gradients(const std::vector<std::size_t>& cuts, const std::vector<int>& placement,
                                     const std::string& schedule = "gpipe") {
  const auto layers = skip_layers();
  PipelineConfig config;
  config.cuts = cuts;
  config.placement = {placement};
  config.schedule = schedule;
  config.chunks = 3;
  Pipeline pipeline(layers, config, classification_loss);
  pipeline.train_step(random_batch(kImages, 7, 5), {});
  std::vector<torch::Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& p : layer->parameters()) all.push_back(p.grad());
  }
  return all;
}

TEST(SkipConnections, CrossEveryCut) {
  const auto expected = gradients({}, {});
  for (const auto& [cuts, placement] : std::vector<std::pair<std::vector<std::size_t>, std::vector<int>>>{
           {{1}, {0, 1}}, {{2}, {0, 1}}, {{3}, {0, 1}}, {{1, 2, 3}, {0, 1, 2, 3}}, {{1, 3}, {0, 1, 0}}}) {
    const auto actual = gradients(cuts, placement);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(actual[i], expected[i])) << cuts.size() + 1 << " stages";
  }
}

TEST(SkipConnections, CrossEveryCutWhereBackwardsAreSplit) {
  const auto expected = gradients({}, {});
  const auto actual = gradients({1, 2, 3}, {0, 1, 2, 3}, "zb-h1");
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i;
}

// topk:1 sends every value that is not 0, so its bytes show how many gradients came back.
TEST(TopKForward, AlsoMasksTheGradientThatComesBack) {
  const auto backward_bits = [](const std::string& forward) {
    const auto model = make_model("mlp", kImages, 7);
    PipelineConfig config;
    config.cuts = {2};
    config.codecs = {{forward, "topk:1"}};
    Pipeline pipeline(model.layers, config, classification_loss);
    return pipeline.train_step(random_batch(kImages, 64, 5), {}).backward[0].bits_per_value();
  };
  EXPECT_GT(backward_bits("none"), 20);
  EXPECT_LT(backward_bits("topk:0.05"), 0.05 * 32 + 1.2);
}

TEST(Chunks, AreAsEqualAsPossible) {
  const auto chunks = split(10, 4);
  ASSERT_EQ(chunks.size(), 4U);
  std::vector<std::int64_t> sizes;
  std::int64_t next = 0;
  for (const Chunk& c : chunks) {
    EXPECT_EQ(c.begin, next);
    next += c.size;
    sizes.push_back(c.size);
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_THROW(split(3, 4), std::invalid_argument);
  EXPECT_THROW(split(3, 0), std::invalid_argument);
}

TEST(BalancedCuts, FollowTheFlopsAndLeaveEveryStageALayer) {
  const auto model = architecture_of("cnn", kImages);
  const auto batch = random_batch(kImages, 1, 1);
  layer::ForwardContext at;
  at.training = false;
  at.samples = batch.samples;
  for (int stages = 1; stages <= 5; ++stages) {
    const auto cuts = model::balanced_cuts(model, batch.inputs, at, stages);
    ASSERT_EQ(cuts.size(), static_cast<std::size_t>(stages - 1));
    std::size_t previous = 0;
    for (const std::size_t cut : cuts) {
      EXPECT_GT(cut, previous);
      previous = cut;
    }
    EXPECT_LT(previous, 5U);
    EXPECT_EQ(model::balanced_cuts(model, batch.inputs, at, stages), cuts);
  }
  EXPECT_THROW(model::balanced_cuts(model, batch.inputs, at, 6), std::invalid_argument);
}

TEST(InputEdge, TheFirstStageEnlargesImagesBeforeItsLayersSeeThem) {
  const auto loss_of = [](std::int64_t edge, const layer::Batch& batch) {
    const auto model = make_model("cnn", kImages, 7);
    PipelineConfig config;
    config.cuts = {2};
    config.chunks = 2;
    config.input_edge = edge;
    Pipeline pipeline(model.layers, config, classification_loss);
    return pipeline.train_step(batch, {}).loss;
  };
  layer::Batch small = random_batch(kImages, 8, 1);
  small.inputs[0] = torch::randn({8, 3, 6, 6});
  layer::Batch large = small;
  large.inputs[0] = torch::upsample_bilinear2d(small.inputs[0], {12, 12}, false, {}, {});
  EXPECT_EQ(loss_of(12, small), loss_of(0, large));
  EXPECT_EQ(loss_of(12, large), loss_of(0, large)) << "images that fit stay as they are";
}

TEST(Devices, OneThatDoesNotExistIsWrongUsage) {
  PipelineConfig config;
  config.devices = {torch::Device("cuda:77")};
  try {
    Pipeline(skip_layers(), config, classification_loss);
    FAIL() << "a pipeline on cuda:77";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("worker 0 is on cuda:77, but there are"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace epipe::pipeline
