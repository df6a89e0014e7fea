// RoBERTa against the numbers of Hugging Face's transformers, and its config.json.
#include <gtest/gtest.h>

#include <fstream>

#include "epipe/model/encoder_config.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/model_run.h"
#include "support/python.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

class SmallRoberta : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = shared_folder() / "reference" / "roberta_small" / "all.safetensors";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path << "; set EPIPE_SHARED";
    auto read = read_safetensors(path.string());
    ASSERT_TRUE(read.ok()) << read.error().text();
    file = std::move(read).value();
    std::ofstream(folder.file("config.json")) << file.metadata.at("config");
    const auto take = [&](const std::string& prefix) {
      NamedTensors taken;
      for (const auto& [name, x] : file.tensors) {
        if (name.starts_with(prefix)) taken[name.substr(prefix.size())] = x;
      }
      for (const auto& [name, x] : taken) file.tensors.erase(prefix + name);
      return taken;
    };
    gradients = take("grad.");
    reference = take("ref.");
    batch.inputs = {reference.at("input_ids")};
    batch.side = {reference.at("attention_mask").to(torch::kFloat32)};
    batch.targets = reference.at("labels");
    for (std::int64_t i = 0; i < batch.targets.size(0); ++i) batch.samples.push_back(i);
    model = make_model("roberta:" + folder.path(), {data::DataSpec::Kind::kText, {24}, 2, 211}, 1);
  }

  TempFolder folder;
  SafeTensors file;  // weights only, once the rest is taken out
  NamedTensors gradients;
  NamedTensors reference;
  layer::Batch batch;
  Model model;
};

TEST_F(SmallRoberta, HasHuggingFacesLogitsAndGradients) {
  const auto loaded = load_weights(model, file.tensors, NewParts::kNone);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  const auto logits = forward(model, batch, true);  // dropout is 0 in its config
  EXPECT_LT((logits - reference.at("logits")).abs().max().item<double>(), 1e-5);
  const auto loss = torch::nll_loss(torch::log_softmax(logits, -1), batch.targets);
  EXPECT_NEAR(loss.item<double>(), reference.at("loss").item<double>(), 1e-5);
  loss.backward();
  std::size_t compared = 0;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) {
      const std::string name = layer->full_name(item.key());
      const auto& expected = gradients.at(name);
      // The keys' biases shift all scores alike, which softmax ignores: their gradient is 0 but for rounding.
      if (name.ends_with("key.bias")) {
        EXPECT_LT(item.value().grad().abs().max().item<double>(), 1e-5) << name;
      } else {
        EXPECT_LT(relative_difference(item.value().grad(), expected), 1e-4) << name;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, gradients.size());
}

TEST_F(SmallRoberta, LoadsWithoutThePrefixAndWithPartsOfOtherTasks) {
  NamedTensors other;
  for (const auto& [name, x] : file.tensors) {
    if (name.starts_with("roberta.")) other[name.substr(8)] = x;
  }
  other["lm_head.dense.weight"] = torch::zeros({48, 48});
  other["pooler.dense.bias"] = torch::zeros({48});
  EXPECT_FALSE(load_weights(model, other, NewParts::kNone)) << "the head is missing";
  const auto loaded = load_weights(model, other, NewParts::kHeadAndCodec);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  ASSERT_EQ(loaded.value().size(), 2U);
  EXPECT_NE(loaded.value()[0].find("lm_head.dense.weight, pooler.dense.bias"), std::string::npos) << loaded.value()[0];
  EXPECT_NE(loaded.value()[1].find("classifier.dense.bias"), std::string::npos) << loaded.value()[1];
  EXPECT_TRUE(torch::equal(tensors_of(model).at("roberta.encoder.layer.2.output.dense.weight"),
                           file.tensors.at("roberta.encoder.layer.2.output.dense.weight")));
}

TEST_F(SmallRoberta, PaddingChangesNothingForTheOtherTokens) {
  const auto loaded = load_weights(model, file.tensors, NewParts::kNone);
  ASSERT_TRUE(loaded.ok());
  layer::Batch longer = batch;
  longer.inputs = {torch::constant_pad_nd(batch.inputs[0], {0, 5}, 1)};
  longer.side = {torch::constant_pad_nd(batch.side[0], {0, 5}, 0)};
  EXPECT_TRUE(torch::allclose(forward(model, longer, false), forward(model, batch, false), 1e-5, 1e-6));
}

TEST(EncoderConfig, RefusesWhatItCannotBuild) {
  const auto message = [](std::string_view json) { return parse_encoder_config(json).error().message; };
  EXPECT_TRUE(parse_encoder_config("{}"));
  EXPECT_NE(message("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(message("{").find("JSON object"), std::string::npos);
  EXPECT_NE(message(R"({"model_type": "t5"})").find("expected model_type \"roberta\", got \"t5\""), std::string::npos);
  EXPECT_NE(message(R"({"hidden_act": "relu"})").find("hidden_act"), std::string::npos);
  EXPECT_NE(message(R"({"hidden_size": 100})").find("12 heads do not divide hidden_size 100"), std::string::npos);
  EXPECT_NE(message(R"({"hidden_size": -1})").find("hidden_size from 1"), std::string::npos);
  EXPECT_NE(message(R"({"hidden_size": 1e9})").find("hidden_size from 1"), std::string::npos);
  EXPECT_NE(message(R"({"num_hidden_layers": 1000000})").find("num_hidden_layers"), std::string::npos);
  EXPECT_NE(message(R"({"hidden_dropout_prob": 1.0})").find("hidden_dropout_prob"), std::string::npos);
  EXPECT_NE(message(R"({"vocab_size": 1})").find("pad_token_id"), std::string::npos);
  EXPECT_NE(message(R"({"hidden_size": 1048576, "num_attention_heads": 1, "num_hidden_layers": 1000})").find("weights, got"),
            std::string::npos);
  const std::string deep = R"({"vocab_size":)" + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  EXPECT_NE(message(deep).find("JSON object"), std::string::npos) << "nested beyond any stack";
}

TEST(EncoderConfig, DropoutOfTheHeadIsThatOfTheRestUnlessGiven) {
  EXPECT_EQ(parse_encoder_config(R"({"hidden_dropout_prob": 0.3, "classifier_dropout": null})").value().classifier_dropout, 0.3);
  EXPECT_EQ(parse_encoder_config(R"({"hidden_dropout_prob": 0.3, "classifier_dropout": 0.5})").value().classifier_dropout, 0.5);
}

TEST(Roberta, HasTheLayersOfThePublishedPartitions) {
  const data::DataSpec data{data::DataSpec::Kind::kText, {128}, 2, 50265};
  const Model model = build_model("roberta-base", data);
  ASSERT_EQ(model.layers.size(), 26U);
  EXPECT_EQ(model.layers[0]->name(), "embeddings");
  EXPECT_EQ(model.layers[2]->name(), "layer.0.ffn") << "condition 2 cuts here";
  EXPECT_EQ(model.layers[23]->name(), "layer.11.attention") << "conditions 1 and 2 cut here";
  EXPECT_EQ(model.layers[25]->name(), "classifier");
  std::int64_t parameters = 0;
  for (const auto& layer : model.layers) {
    for (const auto& p : layer->parameters()) parameters += p.numel();
  }
  EXPECT_EQ(parameters, 124'647'170) << "RobertaForSequenceClassification of roberta-base, two classes";
  EXPECT_THROW(build_model("roberta-base", {data::DataSpec::Kind::kText, {600}, 2, 50265}), std::invalid_argument);
  EXPECT_THROW(build_model("roberta:/nowhere", data), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::model
