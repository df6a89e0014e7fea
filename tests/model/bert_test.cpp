// BERT against the numbers of Hugging Face's transformers (tests/parity/bert_reference.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/models.h"
#include "support/temp_folder.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

const data::DataSpec kPairs{data::DataSpec::Kind::kText, {9}, 3, 50};

class TinyBert : public ::testing::Test {
 protected:
  void SetUp() override {
    auto read = read_safetensors(std::string(EPIPE_SOURCE_DIR) + "/tests/model/bert_tiny.safetensors");
    ASSERT_TRUE(read.ok()) << read.error().text();
    for (const auto& [name, x] : read.value().tensors) {
      if (!name.starts_with("grad.") && !name.starts_with("ref.")) weights[name] = x;
    }
    tensors = std::move(read.value().tensors);
    std::ofstream(folder.file("config.json")) << read.value().metadata.at("config");
    ASSERT_TRUE(write_safetensors(folder.file("model.safetensors"), weights).ok());
  }

  TempFolder folder;
  NamedTensors tensors;
  NamedTensors weights;
};

TEST_F(TinyBert, HasHuggingFacesLogitsAndGradients) {
  const Model model = build_model("hf:" + folder.path(), kPairs);
  auto mapped = map_weights(folder.path());
  ASSERT_TRUE(mapped.ok()) << mapped.error().text();
  const auto loaded = load_weights(model, mapped.value().tensors, NewParts::kNone);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  layer::ForwardContext at;
  at.samples = {0, 1, 2};
  at.side = {tensors.at("ref.attention_mask").to(torch::kFloat32)};
  layer::Tensors x = {tensors.at("ref.input_ids"), tensors.at("ref.token_type_ids")};
  for (const auto& layer : model.layers) x = layer->forward(x, at);
  EXPECT_LT((x[0] - tensors.at("ref.logits")).abs().max().item<double>(), 1e-5);
  const auto loss = torch::nll_loss(torch::log_softmax(x[0], -1), tensors.at("ref.labels"));
  EXPECT_NEAR(loss.item<double>(), tensors.at("ref.loss").item<double>(), 1e-5);
  loss.backward();
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) {
      const std::string name = layer->full_name(item.key());
      const auto& expected = tensors.at("grad." + name);
      const double largest = std::max(expected.abs().max().item<double>(), 1e-3);  // softmax ignores the keys' biases
      EXPECT_LT((item.value().grad() - expected).abs().max().item<double>(), 1e-4 * largest) << name;
    }
  }
}

TEST_F(TinyBert, WithoutItsPrefixAndHeadStartsThatFresh) {
  NamedTensors bare;
  for (const auto& [name, x] : weights) {
    if (name.starts_with("bert.")) bare[name.substr(5)] = x;
  }
  const Model model = build_model("hf:" + folder.path(), kPairs);
  EXPECT_FALSE(load_weights(model, bare, NewParts::kNone).ok());
  const auto loaded = load_weights(model, bare, NewParts::kHeadAndCodec);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  EXPECT_TRUE(torch::equal(tensors_of(model).at("bert.pooler.dense.weight"), weights.at("bert.pooler.dense.weight")));
}

TEST_F(TinyBert, AFolderThatIsNoModelIsSaid) {
  const auto complaint = [&](const std::string& name) -> std::string {
    try {
      build_model(name, kPairs);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint("hf:" + folder.file("nowhere")).find("expected a folder with config.json"), std::string::npos);
  std::ofstream(folder.file("config.json")) << R"({"model_type": "t5"})";
  EXPECT_NE(complaint("hf:" + folder.path()).find("got \"t5\""), std::string::npos) << complaint("hf:" + folder.path());
  std::ofstream(folder.file("config.json")) << "{";
  EXPECT_NE(complaint("hf:" + folder.path()).find("expected a JSON object"), std::string::npos);
}

TEST_F(TinyBert, InSeveralFilesIsReadByTheirIndexAndWhatIsWrongWithThemIsNamed) {
  NamedTensors first;
  NamedTensors second = weights;
  first.insert(second.extract(second.begin()));
  std::filesystem::remove(folder.file("model.safetensors"));
  const auto error = [&] {
    const auto mapped = map_weights(folder.path());
    return mapped.ok() ? "" : mapped.error().message;
  };
  EXPECT_NE(error().find("neither is there"), std::string::npos) << error();
  std::ofstream(folder.file("model.safetensors.index.json")) << R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})";
  EXPECT_NE(error().find("one.safetensors, which is not there"), std::string::npos) << error();
  ASSERT_TRUE(write_safetensors(folder.file("one.safetensors"), first).ok());
  ASSERT_TRUE(write_safetensors(folder.file("two.safetensors"), second).ok());
  const auto mapped = map_weights(folder.path());
  ASSERT_TRUE(mapped.ok()) << mapped.error().text();
  EXPECT_EQ(mapped.value().tensors.size(), weights.size());
  EXPECT_EQ(mapped.value().files.size(), 2U);
  std::filesystem::resize_file(folder.file("two.safetensors"), 1000);
  EXPECT_NE(error().find("two.safetensors"), std::string::npos) << error();
  ASSERT_TRUE(write_safetensors(folder.file("two.safetensors"), weights).ok());
  EXPECT_NE(error().find("is in another file"), std::string::npos) << error();
  std::ofstream(folder.file("model.safetensors.index.json")) << R"({"weight_map": {"a": "../../etc/passwd"}})";
  EXPECT_NE(error().find("the name of a file beside it"), std::string::npos) << error();
}

}  // namespace
}  // namespace epipe::model
