// The networks as lists of layers: their names, sizes and first weights.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "epipe/layer/modules.h"
#include "epipe/model/costs.h"
#include "epipe/model/weights.h"
#include "support/model_run.h"
#include "support/python.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

const data::DataSpec kImageNet{data::DataSpec::Kind::kImages, {3, 224, 224}, 1000};

std::int64_t parameters_of(const Model& model) {
  std::int64_t count = 0;
  for (const auto& layer : model.layers) {
    for (const auto& p : layer->parameters()) count += p.numel();
  }
  return count;
}

std::vector<LayerCost> costs_of(const std::string& name, const data::DataSpec& data) {
  const auto batch = random_batch(data, 1, 1);
  return layer_costs(architecture_of(name, data), batch.inputs, context_of(batch, false));
}

struct Published {
  std::string model;
  std::size_t layers;
  std::int64_t parameters;
  double gflops;  // multiplications and additions
};

TEST(Models, HaveTorchvisionsParametersAndTheLiteraturesFlops) {
  for (const auto& [name, layers, parameters, gflops] :
       {Published{"mobilenet_v2", 20, 3'504'872, 0.60}, Published{"resnet18", 10, 11'689'512, 3.63},
        Published{"resnet50", 18, 25'557'032, 8.2}, Published{"resnet101", 35, 44'549'160, 15.6},
        Published{"vgg13", 13, 133'047'848, 22.6}}) {
    const Model model = build_model(name, kImageNet);
    EXPECT_EQ(model.layers.size(), layers) << name;
    EXPECT_EQ(parameters_of(model), parameters) << name;
    double flops = 0;
    for (const LayerCost& cost : costs_of(name, kImageNet)) flops += cost.flops;
    EXPECT_NEAR(flops / 1e9, gflops, 0.06 * gflops) << name;
  }
}

TEST(Models, CarryThePublishedTensorsAcrossMobilenetsCuts) {
  const auto costs = costs_of("mobilenet_v2", kImageNet);
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(costs[0].shapes, std::vector<Shape>{(Shape{1, 32, 112, 112})});
  EXPECT_EQ(costs[2].shapes, std::vector<Shape>{(Shape{1, 24, 56, 56})});
  EXPECT_EQ(costs[6].shapes, std::vector<Shape>{(Shape{1, 32, 28, 28})});
  EXPECT_EQ(costs[18].shapes, std::vector<Shape>{(Shape{1, 1280, 7, 7})});
}

TEST(Models, LayerAndTensorNamesAreUnique) {
  for (const std::string name : {"mlp", "cnn", "mobilenet_v2", "resnet18", "resnet50", "vgg13", "amoebanet_d"}) {
    const Model model = build_model(name, kImageNet);
    std::set<std::string> names;
    std::size_t tensors = 0;
    for (const auto& layer : model.layers) {
      EXPECT_TRUE(names.insert(layer->name()).second) << name << " " << layer->name();
      tensors += layer->named_parameters().size() + layer->named_buffers().size();
    }
    EXPECT_EQ(tensors_of(model).size(), tensors) << name;
  }
}

TEST(Models, TakeTheirNumberOfClassesAndChannelsFromTheData) {
  const data::DataSpec gray{data::DataSpec::Kind::kImages, {1, 33, 35}, 3};  // odd sizes too
  for (const std::string name : {"mobilenet_v2", "resnet18", "vgg13", "amoebanet_d"}) {
    const Model model = make_model(name, gray, 1);
    EXPECT_EQ(forward(model, random_batch(gray, 2, 1), false).sizes(), (std::vector<std::int64_t>{2, 3})) << name;
    EXPECT_THROW(make_model(name, kText, 1), std::invalid_argument) << name;
  }
  EXPECT_THROW(build_model("vgg13", kImages), std::invalid_argument) << "too small to be halved five times";
}

TEST(Models, RefuseWeightsBeyondAnyModelBeforeTheyAreAllocated) {
  EXPECT_THROW(layer::new_weight({std::int64_t{1} << 31, 2}), std::invalid_argument);
  EXPECT_THROW(layer::new_weight({std::int64_t{1} << 40, std::int64_t{1} << 40, 0}), std::invalid_argument)
      << "even where the product is 0";
  EXPECT_EQ(layer::new_weight({3, 0, 2}).numel(), 0);
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_THROW(build_model("mlp", {data::DataSpec::Kind::kImages, {large, large}, 2}), std::invalid_argument) << "2^64 is 0 in 64 bits";
}

TEST(Models, StartAsTorchvisionDoesAndTheSameForTheSameSeed) {
  const auto tensors = tensors_of(make_model("resnet18", kImages, 1));
  const auto& conv = tensors.at("layer2.0.conv1.weight");  // [128, 64, 3, 3]
  EXPECT_NEAR(conv.std().item<double>(), std::sqrt(2.0 / (128 * 9)), 2e-3);
  EXPECT_TRUE(torch::equal(tensors.at("layer2.0.bn1.weight"), torch::ones({128})));
  const double bound = 1 / std::sqrt(512.0);
  EXPECT_NEAR(tensors.at("fc.weight").abs().max().item<double>(), bound, 0.01 * bound);
  EXPECT_GT(tensors.at("fc.bias").abs().max().item<double>(), 0);
  const auto again = tensors_of(make_model("resnet18", kImages, 1));
  const auto other = tensors_of(make_model("resnet18", kImages, 2));
  for (const auto& [name, x] : tensors) EXPECT_TRUE(torch::equal(again.at(name), x)) << name;
  EXPECT_FALSE(torch::equal(other.at("conv1.weight"), tensors.at("conv1.weight")));
  const auto mobile = tensors_of(make_model("mobilenet_v2", kImages, 1));
  EXPECT_NEAR(mobile.at("features.17.conv.1.0.weight").std().item<double>(), std::sqrt(2.0 / (960 * 9)), 1e-3) << "depthwise";
  EXPECT_NEAR(mobile.at("classifier.1.weight").std().item<double>(), 0.01, 1e-3);
}

TEST(Models, UnknownNamesAndArgumentsAreRefused) {
  const auto message = [](const std::string& name) {
    try {
      build_model(name, kImages);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("resnet19").find("known are mlp, cnn, transformer, mobilenet_v2"), std::string::npos);
  EXPECT_NE(message("resnet18:x").find("takes no argument"), std::string::npos);
  EXPECT_NE(message("torchscript").find("expected torchscript:FILE"), std::string::npos);
  EXPECT_NE(message("torchscript:/nowhere.pt").find("/nowhere.pt"), std::string::npos);
  EXPECT_EQ(message("amoebanet_d:6x32"), "no error");
  for (const std::string wrong : {"4x32", "3x33", "3", "x32", "3x", "3x32x1", "0x32", "-3x32", "3000x32"}) {
    EXPECT_NE(message("amoebanet_d:" + wrong).find("CELLSxFILTERS"), std::string::npos) << wrong;
  }
}

TEST(AmoebaNet, SendsTwoTensorsBetweenCells) {
  const auto costs = costs_of("amoebanet_d", kImages);
  ASSERT_EQ(costs.size(), 9U);
  EXPECT_EQ(costs[0].shapes.size(), 1U);
  for (std::size_t i = 1; i < 7; ++i) EXPECT_EQ(costs[i].shapes.size(), 2U) << costs[i].name;
  EXPECT_EQ(costs[7].shapes.size(), 1U) << "nobody takes what the last cell was given";
  for (std::size_t i = 2; i < 7; ++i) EXPECT_EQ(costs[i].shapes[1], costs[i - 1].shapes[0]) << "the second one is the input";
}

class TorchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("torch")) GTEST_SKIP() << "no PyTorch for " << python();
    run_python("save_torchscript.py", folder.path(), folder.file("log"));
  }
  TempFolder folder;
};

TEST_F(TorchScript, EveryChildIsALayerWithTheSameOutputsAndGradients) {
  const Model model = make_model("torchscript:" + folder.file("plain.pt"), kImages, 1);
  EXPECT_TRUE(architecture_of("torchscript:" + folder.file("plain.pt"), kImages).notes.empty());
  ASSERT_EQ(model.layers.size(), 5U);
  const auto expected = read_weights(folder.file("expected")).value();
  layer::Batch batch;
  batch.inputs = {expected.at("x")};
  const auto y = forward(model, batch, true);
  EXPECT_TRUE(torch::allclose(y, expected.at("y"), 1e-5, 1e-6));
  y.square().mean().backward();
  std::size_t compared = 0;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) {
      EXPECT_LT(relative_difference(item.value().grad(), expected.at("grad." + layer->full_name(item.key()))), 1e-4);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6U);
}

TEST_F(TorchScript, SaysWhatItCannotOffer) {
  const Model model = make_model("torchscript:" + folder.file("random.pt"), kImages, 1);
  const auto notes = architecture_of("torchscript:" + folder.file("random.pt"), kImages).notes;
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find("dropout"), std::string::npos);
  EXPECT_NE(notes[1].find("BatchNorm"), std::string::npos);
  auto at = context_of(random_batch(kImages, 2, 1), true);
  at.recompute = true;
  EXPECT_NO_THROW(model.layers[0]->forward({torch::randn({2, 3, 12, 12})}, at));
  EXPECT_THROW(model.layers[1]->forward({torch::randn({2, 5, 1, 1})}, at), std::runtime_error);
}

TEST_F(TorchScript, GivesPythonsResultsForSequentialsModulesAndTracedOnes) {
  const auto results = read_weights(folder.file("results")).value();
  layer::Batch batch;
  batch.inputs = {read_weights(folder.file("expected")).value().at("x")};
  const torch::NoGradGuard no_grad;
  for (const auto& [name, layers] :
       std::map<std::string, std::size_t>{{"own_scripted", 1}, {"own_traced", 1}, {"sequential_scripted", 5}, {"sequential_traced", 4}}) {
    const Model model = make_model("torchscript:" + folder.file(name + ".pt"), kImages, 1);
    EXPECT_EQ(model.layers.size(), layers) << name << "; a traced nn.Identity is no call";
    EXPECT_TRUE(torch::allclose(forward(model, batch, false), results.at(name), 1e-5, 1e-5)) << name;
  }
  const Model single = make_model("torchscript:" + folder.file("single.pt"), kImages, 1);
  EXPECT_TRUE(torch::equal(forward(single, batch, false), batch.inputs[0].relu()));
}

}  // namespace
}  // namespace epipe::model
