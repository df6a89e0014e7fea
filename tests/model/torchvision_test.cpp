// The image models against torchvision's own, with the same weights, images, labels and dropout masks: outputs in evaluation mode, and in
// training mode the loss, every gradient and every running statistic.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "epipe/data/npy.h"
#include "epipe/layer/random.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/model_run.h"
#include "support/python.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

struct Case {
  std::string model;
  std::int64_t size;  // pixels
  std::int64_t batch;
  std::vector<std::pair<std::string, std::int64_t>> dropouts;  // name and features
  std::vector<double> p;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }
};

class Torchvision : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!python_has("torch, torchvision")) GTEST_SKIP() << "no torchvision for " << python() << "; install python3-torchvision";
  }
};

INSTANTIATE_TEST_SUITE_P(Models, Torchvision,
                         ::testing::Values(Case{"mobilenet_v2", 64, 4, {{"classifier.0", 1280}}, {0.2}}, Case{"resnet18", 64, 4, {}, {}},
                                           Case{"resnet50", 64, 3, {}, {}},
                                           Case{"vgg13", 32, 2, {{"classifier.2", 4096}, {"classifier.5", 4096}}, {0.5, 0.5}}));

TEST_P(Torchvision, HasTheSameOutputsGradientsAndStatistics) {
  const Case& c = GetParam();
  at::set_num_threads(1);
  const data::DataSpec data{data::DataSpec::Kind::kImages, {3, c.size, c.size}, 7};
  const Model model = make_model(c.model, data, 3);
  const auto batch = random_batch(data, c.batch, 5);
  const TempFolder folder;
  {
    NamedTensors given = tensors_of(model);
    given["input.x"] = batch.inputs[0];
    given["input.y"] = batch.targets;
    for (std::size_t i = 0; i < c.dropouts.size(); ++i) {
      const auto& [name, features] = c.dropouts[i];
      given["mask." + name] = layer::dropout_mask({c.batch, features}, c.p[i], context_of(batch, true), name);
    }
    ASSERT_TRUE(write_safetensors(folder.file("in"), given));
  }
  run_python("torchvision_reference.py", c.model + " " + folder.file("in") + " " + folder.file("out"), folder.file("log"));
  if (HasFatalFailure()) return;
  auto expected = read_safetensors(folder.file("out"));
  ASSERT_TRUE(expected.ok()) << expected.error().text();
  auto& theirs = expected.value().tensors;

  {
    const torch::NoGradGuard no_grad;
    EXPECT_LT(relative_difference(forward(model, batch, false), theirs.at("eval")), 1e-4);
  }
  const auto logits = forward(model, batch, true);
  EXPECT_LT(relative_difference(logits, theirs.at("train")), 1e-4);
  const auto loss = torch::nll_loss(torch::log_softmax(logits, -1), batch.targets);
  EXPECT_NEAR(loss.item<double>(), theirs.at("loss").item<double>(), 1e-5);
  loss.backward();
  std::size_t gradients = 0;
  for (const auto& layer : model.layers) {
    layer->commit_batch();
    for (const auto& item : layer->named_parameters()) {
      const std::string name = layer->full_name(item.key());
      ASSERT_TRUE(theirs.contains("grad." + name)) << name;
      EXPECT_LT(relative_difference(item.value().grad(), theirs.at("grad." + name)), 1e-4) << name;
      ++gradients;
    }
    for (const auto& item : layer->named_buffers()) {
      const std::string name = layer->full_name(item.key());
      EXPECT_LT(relative_difference(item.value(), theirs.at("buffer." + name)), 1e-4) << name;
    }
  }
  const auto is_gradient = [](const auto& item) { return item.first.starts_with("grad."); };
  EXPECT_EQ(gradients, static_cast<std::size_t>(std::count_if(theirs.begin(), theirs.end(), is_gradient)));
}

class ImageNetWeights : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_folder() / "weights" / GetParam())) {
      GTEST_SKIP() << "no " << shared_folder() / "weights" / GetParam() << "; set EPIPE_SHARED";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Files, ImageNetWeights, ::testing::Values("mobilenet_v2.safetensors", "mobilenet_v2.pth"));

TEST_P(ImageNetWeights, ReproduceThePublishedTestVector) {
  const auto reference = shared_folder() / "reference" / "mobilenet_v2";
  const auto x = data::read_npy((reference / "input.npy").string());
  const auto y = data::read_npy((reference / "logits.npy").string());
  ASSERT_TRUE(x.ok() && y.ok());
  const Model model = build_model("mobilenet_v2", {data::DataSpec::Kind::kImages, {3, 224, 224}, 1000});
  auto weights = read_weights((shared_folder() / "weights" / GetParam()).string());
  ASSERT_TRUE(weights.ok()) << weights.error().text();
  const auto loaded = load_weights(model, std::move(weights).value(), NewParts::kNone);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  EXPECT_TRUE(loaded.value().empty());
  const torch::NoGradGuard no_grad;
  layer::Batch batch;
  batch.inputs = {x.value()};
  batch.samples.resize(static_cast<std::size_t>(x.value().size(0)));
  EXPECT_LT((forward(model, batch, false) - y.value()).abs().max().item<double>(), 2e-3);
}

TEST_P(ImageNetWeights, KeepAllButTheHeadForOtherClasses) {
  const Model model = make_model("mobilenet_v2", {data::DataSpec::Kind::kImages, {3, 32, 32}, 10}, 1);
  const auto before = tensors_of(model).at("classifier.1.weight").clone();
  auto weights = read_weights((shared_folder() / "weights" / GetParam()).string());
  ASSERT_TRUE(weights.ok()) << weights.error().text();
  const auto strict = load_weights(model, weights.value(), NewParts::kNone);
  ASSERT_FALSE(strict.ok());
  EXPECT_NE(strict.error().message.find("\"classifier.1.weight\": expected shape [10, 1280], got [1000, 1280]"), std::string::npos)
      << strict.error().message;
  const auto loaded = load_weights(model, weights.value(), NewParts::kHeadAndCodec);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  ASSERT_EQ(loaded.value().size(), 1U);
  EXPECT_NE(loaded.value()[0].find("classifier.1.bias, classifier.1.weight"), std::string::npos) << loaded.value()[0];
  EXPECT_TRUE(torch::equal(tensors_of(model).at("classifier.1.weight"), before));
  EXPECT_TRUE(torch::equal(tensors_of(model).at("features.0.0.weight"), weights.value().at("features.0.0.weight")));
}

}  // namespace
}  // namespace epipe::model
