// Codecs that are layers around a cut.
#include "epipe/model/learned_codec.h"

#include <gtest/gtest.h>

#include "epipe/train/learned_codecs.h"
#include "support/model_run.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

const data::DataSpec kSmall{data::DataSpec::Kind::kImages, {3, 14, 13}, 5};

train::Plan plan_with(const std::string& forward, const std::string& backward, std::vector<std::size_t> cuts = {1}) {
  train::Plan plan;
  plan.data = kSmall;
  plan.codecs.assign(cuts.size(), {forward, backward});
  plan.cuts = std::move(cuts);
  return plan;
}

Model initialized(const Architecture& architecture) {
  Model model = build(architecture);
  initialize(model, 1);
  return model;
}

Model transformer_with(const std::string& codec) {
  Architecture transformer = architecture_of("transformer", kText);
  insert_learned_codec(transformer, 1, *split_learned(codec).learned, {2, 9, 64});
  return initialized(transformer);
}

TEST(LearnedCodec, IsSplitFromTheRestOfTheChain) {
  const auto conv = split_learned("conv:32x4,16>uniform:8");
  ASSERT_TRUE(conv.learned);
  ASSERT_EQ(conv.learned->sets.size(), 2U);
  EXPECT_EQ(conv.learned->sets[0].channels, 32);
  EXPECT_EQ(conv.learned->sets[0].kernel, 4);
  EXPECT_EQ(conv.learned->sets[1].channels, 16);
  EXPECT_EQ(conv.learned->sets[1].kernel, 1);
  EXPECT_EQ(conv.wire, "uniform:8");
  EXPECT_EQ(split_learned("conv:20x3").wire, "none");
  const auto linear = split_learned("linear:768,decay=0.83/500/2500");
  EXPECT_EQ(linear.learned->rank, 768);
  EXPECT_EQ(linear.learned->decay, 0.83);
  EXPECT_EQ(linear.learned->decay_every, 500);
  EXPECT_EQ(linear.learned->decay_until, 2500);
  EXPECT_TRUE(split_learned("linear:64,axis=s").learned->over_tokens);
  EXPECT_FALSE(split_learned("sort:6+2").learned);
  EXPECT_EQ(split_learned("power:4>uniform:8").wire, "power:4>uniform:8");
  for (const char* wrong : {"conv", "conv:", "conv:0x3", "conv:20x", "conv:20x3x3", "conv:1,2,3", "conv:20x3,", "linear:", "linear:0",
                            "linear:5,axis=t", "linear:5,decay=0.5", "linear:5,decay=2/1/1", "linear:5,decay=0.5/0/1", "linear:nan"}) {
    EXPECT_THROW(split_learned(wrong), std::invalid_argument) << wrong;
  }
}

TEST(LearnedCodec, ConvolutionsShrinkWhatCrossesAndRestoreItsShape) {
  for (const auto& [spec, sent] : {std::pair<std::string, std::vector<std::int64_t>>{"conv:20x3", {2, 20, 4, 4}},
                                   {"conv:8x1", {2, 8, 14, 13}},
                                   {"conv:32x4,16", {2, 16, 3, 3}},
                                   {"conv:8x2,4x3", {2, 4, 2, 2}}}) {
    Architecture cnn = architecture_of("cnn", kSmall);
    const auto batch = random_batch(kSmall, 2, 1);
    const auto before = make_model("cnn", kSmall, 1).layers[0]->forward(batch.inputs, context_of(batch, false))[0];
    const std::size_t cut = insert_learned_codec(cnn, 1, *split_learned(spec).learned, before.sizes().vec());
    EXPECT_EQ(cut, 2U);
    const Model model = initialized(cnn);
    ASSERT_EQ(model.layers.size(), 7U);
    EXPECT_EQ(model.layers[1]->name(), "codec.features.1.encode");
    EXPECT_EQ(model.layers[2]->name(), "codec.features.1.decode");
    const auto coded = model.layers[1]->forward({before}, {})[0];
    EXPECT_EQ(coded.sizes(), sent) << spec;
    EXPECT_EQ(model.layers[2]->forward({coded}, {})[0].sizes(), before.sizes()) << spec;
    EXPECT_GT(coded.abs().max().item<double>(), 0);
  }
}

TEST(LearnedCodec, LinearStartsAsTheIdentity) {
  const auto x = torch::randn({2, 9, 64});
  for (const char* const whole : {"linear:64", "linear:9,axis=s"}) {
    const Model model = transformer_with(whole);
    EXPECT_TRUE(torch::equal(model.layers[2]->forward(model.layers[1]->forward({x}, {}), {})[0], x)) << whole;
  }
  const Model narrow = transformer_with("linear:50");
  const auto sent = narrow.layers[1]->forward({x}, {})[0];
  EXPECT_TRUE(torch::equal(sent, x.narrow(2, 0, 50)));
  const auto back = narrow.layers[2]->forward({sent}, {})[0];
  EXPECT_TRUE(torch::equal(back.narrow(2, 0, 50), sent));
  EXPECT_EQ(back.narrow(2, 50, 14).abs().max().item<double>(), 0);
}

TEST(LearnedCodec, RankDecaysWithCommittedTrainingBatchesOnly) {
  const Model model = transformer_with("linear:64,decay=0.5/2/4");
  auto& encode = *model.layers[1];
  const auto x = torch::randn({2, 9, 64});
  const auto rank = [&] {
    layer::ForwardContext at;
    at.training = false;
    return encode.forward({x}, at)[0].size(2);
  };
  std::vector<std::int64_t> ranks;
  for (int batch = 0; batch < 7; ++batch) {
    encode.forward({x}, {});
    encode.forward({x}, {});  // a second micro-batch
    encode.commit_batch();
    encode.commit_batch();  // nothing was trained in between
    encode.forward({x}, {});
    encode.discard_batch();
    ranks.push_back(rank());
    encode.commit_batch();
  }
  EXPECT_EQ(ranks, (std::vector<std::int64_t>{64, 32, 32, 16, 16, 16, 16}));
  EXPECT_EQ(tensors_of(model).at("codec.blocks.0.attention.encode.rank").item<std::int64_t>(), 16) << "kept with the weights";
}

TEST(LearnedCodec, IsRefusedWhereItDoesNotFit) {
  const auto insert = [&](const std::string& name, train::Plan plan) {
    Architecture architecture = architecture_of(name, kSmall);
    train::insert_learned_codecs(architecture, plan);
  };
  EXPECT_NO_THROW(insert("cnn", plan_with("conv:8x2", "conv:8x2")));
  EXPECT_NO_THROW(insert("cnn", plan_with("conv:8x2>uniform:8", "none")));
  EXPECT_THROW(insert("cnn", plan_with("none", "conv:8x2")), std::invalid_argument);
  EXPECT_THROW(insert("cnn", plan_with("conv:8x2", "conv:8x3")), std::invalid_argument);
  EXPECT_THROW(insert("cnn", plan_with("conv:8x15", "none")), std::invalid_argument) << "a kernel larger than the map";
  EXPECT_THROW(insert("cnn", plan_with("linear:14", "none")), std::invalid_argument) << "a rank above the size";
  EXPECT_THROW(insert("cnn", plan_with("linear:5,axis=s", "none")), std::invalid_argument) << "maps have no tokens";
  EXPECT_THROW(insert("mlp", plan_with("conv:8x1", "none")), std::invalid_argument);
  EXPECT_THROW(insert("amoebanet_d", plan_with("conv:8x1", "none", {3})), std::invalid_argument) << "two tensors";
}

TEST(LearnedCodec, TrainsInAPipelineAsInOneStage) {
  const auto batch = random_batch(kSmall, 8, 3);
  const auto train = [&](bool cut) {
    Architecture cnn = architecture_of("cnn", kSmall);
    auto plan = plan_with("conv:8x2>none", "conv:8x2", {1, 3});
    plan.place = {0, 1, 0};
    plan.chunks = 2;
    train::insert_learned_codecs(cnn, plan);
    const Model model = initialized(cnn);
    auto config = train::pipeline_config(plan);
    EXPECT_EQ(config.cuts, (std::vector<std::size_t>{2, 6}));
    EXPECT_EQ(config.codecs[0].forward, "none");
    if (!cut) {
      config = {};
      config.chunks = 2;
    }
    pipeline::Pipeline pipeline(model.layers, config, classification_loss);
    const auto result = pipeline.train_step(batch, {});
    if (cut) {
      EXPECT_EQ(result.forward[0].values, 8U * 8 * 7 * 6);
      EXPECT_EQ(result.backward[0].values, result.forward[0].values) << "gradients shrink alike";
    }
    std::map<std::string, torch::Tensor> gradients;
    for (const auto& layer : model.layers) {
      for (const auto& item : layer->named_parameters()) gradients[layer->full_name(item.key())] = item.value().grad();
    }
    return gradients;
  };
  const auto expected = train(false);
  const auto actual = train(true);
  EXPECT_TRUE(expected.contains("codec.features.1.decode.0.weight"));
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(torch::equal(actual.at(name), gradient)) << name;
}

}  // namespace
}  // namespace epipe::model
