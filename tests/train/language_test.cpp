// Language models in whole runs: cuts change nothing, what is frozen stays and gets no gradient, LoRA trains and saves its adapter.
#include <gtest/gtest.h>

#include "epipe/model/adapter.h"
#include "epipe/model/registry.h"
#include "epipe/model/weights.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using namespace epipe::testing;

constexpr const char* kLlama =
    R"(hf:{"model_type":"llama","vocab_size":40,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":3,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"max_position_embeddings":32})";
constexpr const char* kTiedGpt2 =
    R"(hf:{"model_type":"gpt2","vocab_size":40,"n_embd":16,"n_layer":3,"n_head":2,"n_positions":32,"embd_pdrop":0.1,"resid_pdrop":0.1,)"
    R"("attn_pdrop":0.1})";
constexpr std::int64_t kLength = 12;

// Sums of tokens modulo the vocabulary, with a part at the end of some that is not predicted.
class Sums final : public data::Dataset {
 public:
  explicit Sums(std::int64_t first) : first_(first) {}
  data::DataSpec spec() const override {
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {kLength};
    spec.vocabulary = spec.classes = 40;
    spec.next_token = true;
    spec.metrics = {"perplexity"};
    return spec;
  }
  std::int64_t size() const override { return 48; }
  layer::Batch batch(std::span<const std::int64_t> ids, const data::BatchContext&) const override {
    layer::Batch batch;
    auto tokens = torch::empty({static_cast<std::int64_t>(ids.size()), kLength}, torch::kInt64);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto row = tokens[static_cast<std::int64_t>(i)];
      row[0] = (ids[i] + first_) % 40;
      row[1] = (3 * ids[i] + first_) % 40;
      for (std::int64_t t = 2; t < kLength; ++t) row[t] = (row[t - 1] + row[t - 2]) % 40;
    }
    batch.inputs = {tokens};
    batch.targets = tokens.clone();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] % 3 == 0) batch.targets[static_cast<std::int64_t>(i)].narrow(0, kLength - 4, 4).fill_(layer::kNoTarget);
    }
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  std::int64_t first_;
};

const Registry& with_sums() {
  static const Registry the = [] {
    Registry registry;
    registry.models = model::builtin_models();
    registry.data.add("sums", [](const std::string&) -> data::Splits { return {std::make_unique<Sums>(0), std::make_unique<Sums>(7)}; });
    return registry;
  }();
  return the;
}

TrainConfig config_in(const std::string& run_dir, const char* model) {
  TrainConfig config;
  config.model = model;
  config.data = "sums";
  config.batch = 16;
  config.chunks = 4;
  config.epochs = 2;
  config.lr = 0.01;
  config.optimizer = "adamw";
  config.clip = 1;
  config.seed = 3;
  config.error_every = 0;
  config.run_dir = run_dir;
  return config;
}

TrainResult train_here(const TrainConfig& config) {
  Watcher watcher;
  return train(with_sums(), config, watcher, watcher.stop);
}

struct Placed {
  const char* name;
  std::vector<std::string> cuts;
  std::vector<int> place;
  std::string schedule = "gpipe";
  bool recompute = false;
};

void expect_same_for_all(const char* model, const std::vector<Placed>& placements) {
  const TempFolder folder;
  train_here(config_in(folder.file("whole"), model));
  for (const Placed& placed : placements) {
    SCOPED_TRACE(placed.name);
    TrainConfig config = config_in(folder.file(placed.name), model);
    config.cuts = placed.cuts;
    config.place = placed.place;
    config.schedule = placed.schedule;
    config.recompute = placed.recompute;
    train_here(config);
    expect_equal_weights(folder.file("whole"), folder.file(placed.name));
  }
}

TEST(LanguageModel, CutAnywhereIsTheWholeOneBitForBit) {
  expect_same_for_all(kLlama, {{"ring", {"block.0", "norm"}, {0, 1, 0}},
                               {"chain", {"block.1", "head"}, {0, 1, 2}, "1f1b"},
                               {"recompute", {"block.1", "block.2"}, {0, 1, 0}, "gpipe", true}});
}

TEST(LanguageModel, WithATiedHeadIsTheWholeOneBitForBit) {
  expect_same_for_all(kTiedGpt2, {{"ring", {"block.0", "norm"}, {0, 1, 0}},
                                  {"early", {"block.1", "block.2"}, {0, 1, 0}, "1f1b"},
                                  {"recompute", {"block.1", "head"}, {0, 1, 0}, "gpipe", true}});
}

TEST(LanguageModel, WithATiedHeadIsAuditedAndTrainsAsIfItWereNot) {
  const TempFolder folder;
  TrainConfig plain = config_in(folder.file("plain"), kTiedGpt2);
  plain.cuts = {"block.1", "norm"};
  plain.place = {0, 1, 0};
  plain.codec = "ec:4";
  plain.audit_share = 10;
  TrainConfig audited = plain;
  audited.run_dir = folder.file("audited");
  audited.audit = true;
  train_here(plain);
  train_here(audited);
  expect_equal_weights(plain.run_dir, audited.run_dir);
  EXPECT_GE(metrics_in(audited.run_dir, "audit").size(), 2U);
}

TEST(LanguageModel, WithATiedHeadWantsBothEndsOnOneWorker) {
  const TempFolder folder;
  TrainConfig config = config_in(folder.file("run"), kTiedGpt2);
  config.cuts = {"block.1"};
  config.place = {0, 1};
  try {
    train_here(config);
    FAIL() << "it was not refused";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("share a matrix"), std::string::npos) << error.what();
  }
}

TEST(LanguageModel, LearnsAndReportsNatsPerToken) {
  const TempFolder folder;
  TrainConfig config = config_in(folder.file("run"), kLlama);
  config.epochs = 12;
  const TrainResult result = train_here(config);
  const auto epochs = metrics_in(config.run_dir, "epoch");
  ASSERT_EQ(epochs.size(), 12U);
  EXPECT_NEAR(epochs.front().at("loss").get<double>(), std::log(40.0), 0.4);
  EXPECT_LT(epochs.back().at("loss").get<double>(), 2.0);
  EXPECT_EQ(epochs.back().at("metric"), "perplexity");
  EXPECT_NEAR(epochs.back().at("val_metric").get<double>(), std::exp(result.val_loss), 1e-3);
}

// Of a direction, over all steps.
std::uint64_t bytes_of(const std::string& run_dir, std::size_t cut, const char* direction) {
  std::uint64_t sum = 0;
  for (const auto& step : metrics_in(run_dir, "step")) {
    for (const auto& line : step.at("cuts")) {
      if (line.at("cut") == cut && line.at("direction") == direction) sum += line.at("wire_bytes").get<std::uint64_t>();
    }
  }
  return sum;
}

TEST(FrozenLayers, StayAsTheyAreAndTheCutBeforeTheFirstTrainedOneCarriesNoGradient) {
  const TempFolder folder;
  for (const char* const schedule : {"gpipe", "1f1b"}) {
    SCOPED_TRACE(schedule);
    TrainConfig config = config_in(folder.file(std::string("whole") + schedule), kLlama);
    config.freeze = {"0-1"};
    config.weight_decay = 0.1;
    train_here(config);
    TrainConfig cut = config;
    cut.run_dir = folder.file(std::string("cut") + schedule);
    cut.schedule = schedule;
    cut.cuts = {"block.1", "norm"};
    cut.place = {0, 1, 0};
    train_here(cut);
    expect_equal_weights(config.run_dir, cut.run_dir);
    EXPECT_GT(bytes_of(cut.run_dir, 0, "forward"), 0U);
    EXPECT_EQ(bytes_of(cut.run_dir, 0, "backward"), 0U);
    EXPECT_GT(bytes_of(cut.run_dir, 1, "backward"), 0U);
  }
  TrainConfig none = config_in(folder.file("none"), kLlama);
  none.lr = 0;
  train_here(none);
  const auto first = weights_in(none.run_dir);
  const auto trained = weights_in(folder.file("cutgpipe"));
  for (const auto& [name, tensor] : first) {
    const bool frozen = name.starts_with("model.embed_tokens") || name.starts_with("model.layers.0.");
    EXPECT_EQ(torch::equal(tensor, trained.at(name)), frozen) << name;
  }
}

TEST(FrozenLayers, KeepTheStatisticsOfBatchNorm) {
  const TempFolder folder;
  TrainConfig none = small_run(folder.file("none"));
  none.max_steps = 1;
  none.lr = 0;
  none.freeze = {"0"};
  train_here(none);
  TrainConfig trained = none;
  trained.run_dir = folder.file("trained");
  trained.max_steps = 6;
  trained.lr = 0.1;
  train_here(trained);
  const auto first = weights_in(none.run_dir);
  std::size_t kept = 0;
  std::size_t moved = 0;
  for (const auto& [name, tensor] : weights_in(trained.run_dir)) {
    if (name.find("running_mean") == std::string::npos) continue;
    (torch::equal(tensor, first.at(name)) ? kept : moved) += 1;
  }
  EXPECT_EQ(kept, 1U);
  EXPECT_GT(moved, 0U);
}

TEST(FrozenLayers, AreNamedByNameIndexAndRangeAndAMistakeIsSaid) {
  const TempFolder folder;
  for (const char* const wrong : {"nothing", "9", "3-1", "0-9"}) {
    TrainConfig config = config_in(folder.file("run"), kLlama);
    config.freeze = {wrong};
    EXPECT_THROW(train_here(config), std::invalid_argument) << wrong;
  }
  TrainConfig all = config_in(folder.file("run"), kLlama);
  all.freeze = {"0-5"};
  EXPECT_THROW(train_here(all), std::invalid_argument);
}

TEST(Lora, TrainsTheAdapterAloneTheSameForEveryCutAndSavesItAsPeftDoes) {
  const TempFolder folder;
  TrainConfig config = config_in(folder.file("whole"), kLlama);
  config.lora = "r=2,alpha=4,dropout=0.1,targets=q_proj+v_proj+down_proj";
  config.merge_adapter = true;
  train_here(config);
  TrainConfig cut = config;
  cut.run_dir = folder.file("cut");
  cut.cuts = {"block.1", "norm"};
  cut.place = {0, 1, 0};
  train_here(cut);
  const auto adapter = tensors_in(config.run_dir + "/adapter/adapter_model.safetensors");
  expect_equal(adapter, tensors_in(cut.run_dir + "/adapter/adapter_model.safetensors"));
  EXPECT_EQ(adapter.size(), 3U * 3U * 2U);
  EXPECT_TRUE(adapter.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_GT(adapter.at("base_model.model.model.layers.2.mlp.down_proj.lora_B.weight").abs().max().item<double>(), 0);
  const auto read = model::read_adapter(config.run_dir + "/adapter");
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read.value().config.rank, 2);
  EXPECT_EQ(read.value().config.scale(), 2);

  // The merged weights are the first ones plus the product of the thin matrices.
  TrainConfig none = config_in(folder.file("none"), kLlama);
  none.lr = 0;
  train_here(none);
  auto expected = weights_in(none.run_dir);
  for (const auto& [name, a] : read.value().tensors) {
    if (!name.ends_with("lora_A.weight")) continue;
    const std::string base = name.substr(0, name.size() - std::string("lora_A.weight").size());
    expected.at(base + "weight") += 2 * torch::matmul(read.value().tensors.at(base + "lora_B.weight"), a);
  }
  expect_equal(weights_in(config.run_dir), expected);
}

TEST(Lora, AnAdapterIsTrainedFurther) {
  const TempFolder folder;
  TrainConfig base = config_in(folder.file("base"), kLlama);
  train_here(base);
  TrainConfig first = config_in(folder.file("first"), kLlama);
  first.weights = base.run_dir + "/model.safetensors";
  first.lora = "r=2,alpha=4";
  train_here(first);
  TrainConfig second = config_in(folder.file("second"), kLlama);
  second.weights = first.weights;
  second.adapter = first.run_dir + "/adapter";
  second.lr = 0;
  train_here(second);
  expect_equal(tensors_in(first.run_dir + "/adapter/adapter_model.safetensors"),
               tensors_in(second.run_dir + "/adapter/adapter_model.safetensors"));
  EXPECT_NEAR(metrics_in(second.run_dir, "epoch").back().at("val_loss").get<double>(),
              metrics_in(first.run_dir, "epoch").back().at("val_loss").get<double>(), 1e-6);
}

TEST(Lora, AnAdapterThatLeavesLayersAloneAddsNothingThere) {
  const TempFolder folder;
  TrainConfig base = config_in(folder.file("base"), kLlama);
  train_here(base);
  TrainConfig some = config_in(folder.file("some"), kLlama);
  some.weights = base.run_dir + "/model.safetensors";
  some.lora = "r=2,alpha=4";
  some.freeze = {"0-1"};
  train_here(some);
  EXPECT_EQ(tensors_in(some.run_dir + "/adapter/adapter_model.safetensors").size(), 2U * 2U * 2U);
  TrainConfig again = config_in("", kLlama);
  again.adapter = some.run_dir + "/adapter";
  EXPECT_NEAR(evaluate(with_sums(), again, some.weights).val_loss, metrics_in(some.run_dir, "epoch").back().at("val_loss").get<double>(),
              1e-6);
}

TEST(Lora, IsResumedToTheWeightsOfARunThatWasNotStopped) {
  const TempFolder folder;
  TrainConfig whole = config_in(folder.file("whole"), kTiedGpt2);
  whole.lora = "r=2,alpha=4";
  whole.cuts = {"block.1", "norm"};
  whole.place = {0, 1, 0};
  train_here(whole);
  TrainConfig stopped = whole;
  stopped.run_dir = folder.file("stopped");
  Watcher watcher;
  watcher.stop_after = 3;
  train(with_sums(), stopped, watcher, watcher.stop);
  stopped.resume = true;
  train_here(stopped);
  expect_equal(tensors_in(whole.run_dir + "/adapter/adapter_model.safetensors"),
               tensors_in(stopped.run_dir + "/adapter/adapter_model.safetensors"));
}

TEST(Lora, WithAHalfPrecisionBaseTrainsTheSameThinMatricesInFloat32) {
  const TempFolder folder;
  TrainConfig config = config_in(folder.file("run"), kLlama);
  config.lora = "r=2,alpha=4";
  config.base_precision = "bf16";
  config.merge_adapter = true;
  train_here(config);
  for (const auto& [name, tensor] : tensors_in(config.run_dir + "/adapter/adapter_model.safetensors")) {
    EXPECT_EQ(tensor.scalar_type(), torch::kFloat32) << name;
  }
  EXPECT_EQ(weights_in(config.run_dir).at("model.embed_tokens.weight").scalar_type(), torch::kBFloat16);
}

TEST(Lora, AMistakeIsSaid) {
  const TempFolder folder;
  for (const char* const wrong : {"r=0", "rank=3", "r=2,targets=nowhere", "r=x", "r=2,dropout=1", "r=2.5"}) {
    TrainConfig config = config_in(folder.file("run"), kLlama);
    config.lora = wrong;
    EXPECT_THROW(train_here(config), std::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace epipe::train
