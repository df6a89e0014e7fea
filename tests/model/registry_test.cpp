// Models by name, and layers that are made when somebody runs them.
#include "epipe/model/registry.h"

#include <gtest/gtest.h>

#include <fstream>

#include <algorithm>

#include "epipe/model/costs.h"
#include "support/model_run.h"
#include "support/training.h"

#include "support/temp_folder.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

// Counts how many of its kind there are.
class Counted final : public layer::Layer {
 public:
  Counted(const std::string& name, int* alive, int* most) : Layer(name), alive_(alive) { *most = std::max(*most, ++*alive); }
  ~Counted() override { --*alive_; }
  layer::Tensors forward(const layer::Tensors& in, const layer::ForwardContext&) override { return {in[0] + 1}; }
  double flops(const layer::Tensors& in, const layer::Tensors&) const override { return static_cast<double>(in[0].numel()); }

 private:
  int* alive_;
};

class Layers : public ::testing::Test {
 protected:
  Layers() {
    for (int i = 0; i < 6; ++i) architecture_.layers.push_back(named_maker<Counted>("layer." + std::to_string(i), &alive_, &most_));
  }
  int alive_ = 0;
  int most_ = 0;
  Architecture architecture_;
};

TEST_F(Layers, AreMadeOnlyWhereTheyAreWanted) {
  const Model model = build(architecture_, [](std::size_t i) { return i == 0 || i == 5; });
  ASSERT_EQ(model.layers.size(), 6U);
  EXPECT_EQ(most_, 2);
  EXPECT_EQ(model.layers[0]->name(), "layer.0");
  EXPECT_EQ(model.layers[5]->name(), "layer.5");
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(model.layers[i], nullptr);
  EXPECT_NO_THROW(initialize(model, 1));
  EXPECT_TRUE(tensors_of(model).empty());
}

TEST_F(Layers, AreHeldOneAtATimeByWhoLooksAtThem) {
  layer::ForwardContext at;
  at.training = false;
  const auto sample = layer::Tensors{torch::zeros({1, 4})};
  EXPECT_EQ(layer_costs(architecture_, sample, at).size(), 6U);
  EXPECT_EQ(balanced_cuts(architecture_, sample, at, 3), (std::vector<std::size_t>{2, 4}));
  EXPECT_TRUE(torch::equal(forward_layer_by_layer(architecture_, sample, at)[0], torch::full({1, 4}, 6.0)));
  TimingOptions options;
  options.row_bytes = 0;
  EXPECT_EQ(time_layers(architecture_, sample, at, options).size(), 6U);
  EXPECT_EQ(most_, 1);
  EXPECT_EQ(alive_, 0);
}

TEST_F(Layers, AreTimedInARowWhereTheyFit) {
  layer::ForwardContext at;
  at.training = false;
  EXPECT_EQ(measured_cuts(architecture_, {torch::zeros({1, 4})}, at, 2).size(), 1U);
  EXPECT_EQ(most_, 6);
  EXPECT_EQ(alive_, 0);
}

TEST_F(Layers, ThatHaveAnotherNameThanTheirMakerSaysAreRefused) {
  architecture_.layers[2].name = "another";
  EXPECT_THROW(build(architecture_), std::logic_error);
}

TEST(Architectures, NameTheLayersTheyMake) {
  for (const std::string& name : registry().models.names()) {
    if (name.find(':') != std::string::npos) continue;
    data::DataSpec data = takes_text(name) ? kText : kImages;
    if (!takes_text(name)) data.shape = {3, 32, 32};
    EXPECT_NO_THROW(build_model(name, data)) << name;
  }
}

TEST(Architectures, MakeTheSameLayersAloneAsInAWholeModel) {
  const auto whole = tensors_of(make_model("mobilenet_v2", kImages, 3));
  const auto architecture = architecture_of("mobilenet_v2", kImages);
  const Model part = build(architecture, [](std::size_t i) { return i >= 5 && i < 9; });
  initialize(part, 3);
  const auto tensors = tensors_of(part);
  EXPECT_GT(tensors.size(), 40U);
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(torch::equal(tensor, whole.at(name))) << name;
}

TEST(Registry, KnowsWhatIsAddedToIt) {
  Registry models = builtin_models();
  const std::size_t before = models.names().size();
  models.add({"mine", "", data::DataSpec::Kind::kText, [](const data::DataSpec& data, const std::string&) {
                return builtin_models().architecture("mlp", {data::DataSpec::Kind::kImages, {data.classes}, data.classes});
              }});
  EXPECT_EQ(models.names().size(), before + 1);
  EXPECT_TRUE(models.takes_text("mine"));
  EXPECT_TRUE(models.is_portable("mine"));
  const Architecture mine = models.architecture("mine", kText);
  EXPECT_EQ(mine.name, "mine");
  EXPECT_EQ(mine.layers.size(), 4U);
  EXPECT_FALSE(builtin_models().is_portable("mine")) << "another program does not know it";
}

TEST(Registry, RefusesNamesThatAreTakenOrNone) {
  Registry models = builtin_models();
  const auto add = [&](const std::string& name) {
    models.add({name, "", data::DataSpec::Kind::kImages, [](const data::DataSpec&, const std::string&) { return Architecture{}; }});
  };
  for (const char* const wrong : {"cnn", "roberta", "", "a:b", "a b", "a,b", "a\"b"})
    EXPECT_THROW(add(wrong), std::invalid_argument) << wrong;
  EXPECT_THROW(models.add({"nothing"}), std::invalid_argument);
  EXPECT_NO_THROW(add("good-name_2"));
  EXPECT_THROW(add("good-name_2"), std::invalid_argument);
}

TEST(Registry, SeedsPyTorchsGeneratorForAFactoryAndLeavesItAsItWas) {
  Registry models;
  torch::Tensor drawn;
  models.add({"draws", "", data::DataSpec::Kind::kImages, [&](const data::DataSpec&, const std::string&) {
                drawn = torch::randn({4});
                return Architecture{};
              }});
  const auto draw = [&](std::uint64_t seed) {
    models.architecture("draws", kImages, seed);
    return drawn;
  };
  torch::manual_seed(5);
  const auto expected = torch::randn({4});
  torch::manual_seed(5);
  const auto one = draw(1);
  EXPECT_TRUE(torch::equal(torch::randn({4}), expected)) << "a program's own numbers stay what they were";
  EXPECT_TRUE(torch::equal(draw(1), one));
  EXPECT_FALSE(torch::equal(draw(2), one));
}

TEST(Registry, APortableNameNamesNoFile) {
  const testing::TempFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"hidden_size": 24, "num_attention_heads": 3, "layer_norm_eps": 0.001})";
  const Registry models = builtin_models();
  const std::string name = models.portable_name("roberta:" + folder.path());
  EXPECT_EQ(name.find(folder.path()), std::string::npos);
  EXPECT_TRUE(name.starts_with("roberta:{")) << name;
  EXPECT_EQ(models.portable_name(name), name);
  EXPECT_TRUE(models.is_portable(name));
  EXPECT_EQ(models.portable_name("cnn"), "cnn");
  EXPECT_TRUE(models.is_portable("cnn"));
  for (const char* const path : {"roberta:DIR", "roberta:/etc", "torchscript:FILE", "torchscript:/etc/passwd", "unknown"}) {
    EXPECT_FALSE(models.is_portable(path)) << path;
  }
  EXPECT_THROW(models.portable_name("roberta:/nowhere"), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::model
