// Decoders against the numbers of Hugging Face's transformers: logits, loss, gradients of every parameter, AdamW, greedy ids, LoRA.
#include <gtest/gtest.h>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <array>
#include <cmath>
#include <map>
#include <numbers>

#include "epipe/layer/attention.h"
#include "epipe/layer/random.h"
#include "epipe/layer/rope.h"
#include "epipe/model/adaptation.h"
#include "epipe/model/adapter.h"
#include "epipe/model/decoder_config.h"
#include "epipe/model/generate.h"
#include "epipe/model/registry.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "epipe/train/next_token_loss.h"
#include "epipe/train/optimizer.h"
#include "support/shared.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

// To the largest value of what is expected.
double relative(const torch::Tensor& got, const torch::Tensor& expected) {
  const double largest = expected.abs().max().item<double>();
  return (got - expected).abs().max().item<double>() / std::max(largest, 1e-12);
}

class HuggingFaceDecoder : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder = shared(std::string("reference/lm/") + GetParam());
    EPIPE_SKIP_WITHOUT(folder);
    auto read = read_safetensors(folder + "/vectors.safetensors");
    ASSERT_TRUE(read.ok()) << read.error().text();
    vectors = std::move(read.value().tensors);
    ids = vectors.at("input_ids");
    mask = vectors.at("attention_mask");
    labels = ids.masked_fill(mask == 0, layer::kNoTarget);
  }

  Model load(bool for_loss, const std::string& adapter = "") {
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {ids.size(1)};
    spec.vocabulary = spec.classes = 503;
    spec.next_token = for_loss;
    auto architecture = builtin_models().architecture("hf:" + folder, spec);
    auto weights = read_weights(folder);
    EXPECT_TRUE(weights.ok()) << weights.error().text();
    if (!adapter.empty()) {
      auto read = read_adapter(adapter);
      EXPECT_TRUE(read.ok()) << read.error().text();
      adapt(architecture, {.lora = read.value().config});
      weights.value().merge(read.value().tensors);
    }
    Model model = build(architecture);
    const auto loaded = load_weights(model, std::move(weights).value(), NewParts::kNone);
    EXPECT_TRUE(loaded.ok()) << loaded.error().text();
    return model;
  }
  layer::Tensors forward(const Model& model) const {
    layer::ForwardContext at;
    for (std::int64_t i = 0; i < ids.size(0); ++i) at.samples.push_back(i);
    layer::Tensors x = {ids};
    for (const auto& layer : model.layers) x = layer->forward(x, at);
    return x;
  }
  torch::Tensor loss(const Model& model) const {
    const auto sum = train::next_token_loss(forward(model), labels).sum;
    return sum / labels.narrow(1, 1, labels.size(1) - 1).ne(layer::kNoTarget).sum();
  }
  static void backward(const Model& model, const torch::Tensor& loss) {
    loss.backward();
    for (const auto& layer : model.layers) layer->finish_gradients();
  }
  // How many gradients were compared with "PREFIX" + name.
  std::size_t compare_gradients(const Model& model, const std::function<std::string(std::string)>& expected_name) const {
    std::size_t compared = 0;
    for (const auto& layer : model.layers) {
      for (const auto& item : layer->named_parameters()) {
        const std::string name = expected_name(layer->full_name(item.key()));
        if (!item.value().requires_grad()) continue;
        EXPECT_TRUE(vectors.contains(name)) << name;
        if (!vectors.contains(name)) continue;
        EXPECT_TRUE(item.value().grad().defined()) << name;
        EXPECT_LT(relative(item.value().grad(), vectors.at(name)), 1e-4) << name;
        ++compared;
      }
    }
    return compared;
  }

  std::string folder;
  NamedTensors vectors;
  torch::Tensor ids;
  torch::Tensor mask;
  torch::Tensor labels;
};

TEST_P(HuggingFaceDecoder, HasItsLogits) {
  const auto logits = forward(load(false))[0];
  EXPECT_LT(relative(logits * mask.unsqueeze(-1), vectors.at("logits")), 1e-5);
}

TEST_P(HuggingFaceDecoder, HasItsLossAndTheGradientOfEveryParameter) {
  const Model model = load(true);
  const auto value = loss(model);
  EXPECT_NEAR(value.item<double>(), vectors.at("loss").item<double>(), 1e-5);
  backward(model, value);
  std::size_t there = 0;
  for (const auto& [name, x] : vectors) there += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(compare_gradients(model, [](const std::string& name) { return "grad." + name; }), there);
}

TEST_P(HuggingFaceDecoder, TakesFourStepsOfAdamW) {
  const Model model = load(true);
  session::NamedParameters parameters;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) parameters.emplace_back(layer->full_name(item.key()), item.value());
  }
  train::Optimizer optimizer({.kind = train::OptimizerConfig::Kind::kAdamW, .weight_decay = 0.01}, parameters);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto value = loss(model);
    EXPECT_NEAR(value.item<double>(), vectors.at("adamw_losses")[step].item<double>(), 2e-4) << step;
    backward(model, value);
    optimizer.step(1e-3);
  }
}

TEST_P(HuggingFaceDecoder, ContinuesAPromptGreedily) {
  const auto expected = vectors.at("greedy").view({-1});
  const std::vector<std::int64_t> all(expected.data_ptr<std::int64_t>(), expected.data_ptr<std::int64_t>() + expected.numel());
  const std::vector<std::int64_t> prompt(all.begin(), all.begin() + 8);
  EXPECT_EQ(generate(load(false), prompt, {.max_new_tokens = 16}), all);
}

TEST_P(HuggingFaceDecoder, WithAnAdapterHasPeftsLogitsLossAndGradients) {
  const std::string adapter = folder + "/adapter";
  EXPECT_LT(relative(forward(load(false, adapter))[0] * mask.unsqueeze(-1), vectors.at("lora_logits")), 1e-5);
  const Model model = load(true, adapter);
  const auto value = loss(model);
  EXPECT_NEAR(value.item<double>(), vectors.at("lora_loss").item<double>(), 1e-5);
  backward(model, value);
  std::size_t there = 0;
  for (const auto& [name, x] : vectors) there += name.starts_with("lora_grad.") ? 1 : 0;
  const auto peft_name = [](std::string name) { return "lora_grad." + adapter_name(name.insert(name.rfind('.'), ".default")); };
  EXPECT_EQ(compare_gradients(model, peft_name), there);
  EXPECT_GT(there, 0U);
}

INSTANTIATE_TEST_SUITE_P(Every, HuggingFaceDecoder, ::testing::Values("gpt2_a", "llama_a", "qwen2_a", "qwen3_a"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DecoderConfig, SurvivesItsText) {
  const char* const texts[] = {
      R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"rope_theta":500000.0,
          "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":8192},"eos_token_id":[1,2]})",
      R"({"model_type":"gpt2","n_embd":48,"n_head":4,"n_inner":100})",
      R"({"model_type":"qwen2","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":true})",
      R"({"model_type":"qwen3","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"rope_scaling":{"type":"linear","factor":2}})",
  };
  for (const char* const text : texts) {
    const auto config = parse_decoder_config(text);
    ASSERT_TRUE(config.ok()) << text << config.error().text();
    const auto again = parse_decoder_config(to_json_text(config.value()));
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(config.value(), again.value()) << text;
  }
}

TEST(DecoderConfig, BothSpellingsOfRopeAreTheSame) {
  const auto before = parse_decoder_config(R"({"model_type":"llama","rope_theta":5e5,"rope_scaling":{"type":"llama3","factor":8}})");
  const auto now = parse_decoder_config(R"({"model_type":"llama","rope_parameters":{"rope_theta":5e5,"rope_type":"llama3","factor":8}})");
  ASSERT_TRUE(before.ok() && now.ok());
  EXPECT_EQ(before.value(), now.value());
}

TEST(DecoderConfig, WhatIsNotComputedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model_type":"mamba"})", "model_type"},
      {R"({"model_type":"llama","hidden_size":16})", "head_dim"},
      {R"({"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":2}})", "yarn"},
      {R"({"model_type":"qwen2","use_sliding_window":true})", "use_sliding_window"},
      {R"({"model_type":"qwen3","layer_types":["sliding_attention"]})", "sliding_attention"},
      {R"({"model_type":"llama","hidden_act":"gelu"})", "hidden_act"},
      {R"({"model_type":"llama","num_attention_heads":5,"num_key_value_heads":3})", "key-value heads"},
      {R"({"model_type":"gpt2","n_head":7})", "heads do not divide"},
      {R"({"model_type":"llama","hidden_size":-1})", "hidden_size"},
      {R"({"model_type":"llama","hidden_size":1000000,"intermediate_size":1000000,"num_hidden_layers":1000})", "2^40"},
      {R"([])", "object"},
  };
  for (const auto& [text, named] : cases) {
    const auto config = parse_decoder_config(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.error().message.find(named), std::string::npos) << text << ": " << config.error().message;
  }
}

// 16 tokens' logits fit at once, so there are parts of 16 and of 7 tokens.
TEST(NextTokenLoss, InPartsIsThatOfAllLogitsAtOnceAndSoAreItsGradients) {
  constexpr std::int64_t kVocabulary = 1'000'000;
  torch::manual_seed(1);
  auto hidden = torch::randn({2, 15, 4}).requires_grad_(true);
  auto weight = torch::randn({kVocabulary, 4}).requires_grad_(true);
  auto targets = torch::randint(kVocabulary, {2, 15}, torch::kInt64);
  targets[0].narrow(0, 3, 5).fill_(layer::kNoTarget);
  targets[1][9] = weight.detach().mv(hidden.detach()[1][8]).argmax();  // one that is right
  const auto logits = torch::matmul(hidden.narrow(1, 0, 14).reshape({28, 4}), weight.t());
  const auto next = targets.narrow(1, 1, 14).reshape({28});
  const auto expected = torch::nll_loss(torch::log_softmax(logits, -1), next, {}, at::Reduction::Sum, layer::kNoTarget);
  const auto got = train::next_token_loss({hidden, weight}, targets);
  EXPECT_EQ(next.ne(layer::kNoTarget).sum().item<std::int64_t>(), 23);
  EXPECT_NEAR(got.sum.item<double>(), expected.item<double>(), 1e-5 * expected.item<double>());
  EXPECT_EQ(got.correct.item<std::int64_t>(), logits.argmax(-1).eq(next).sum().item<std::int64_t>());
  EXPECT_GE(got.correct.item<std::int64_t>(), 1);
  const auto expected_gradients = torch::autograd::grad({expected * 0.5}, {hidden, weight});
  const auto gradients = torch::autograd::grad({got.sum * 0.5}, {hidden, weight});
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_LT(relative(gradients[i], expected_gradients[i]), 1e-5) << i;
}

// How far a position turns the pairs of a head's features, from what Rope makes of [1, ..., 1, 0, ..., 0].
std::vector<double> rope_angles(const layer::RopeConfig& config, std::int64_t head_dim, std::int64_t position) {
  auto x = torch::zeros({1, 1, 1, head_dim});
  x.narrow(3, 0, head_dim / 2).fill_(1);
  const auto y = layer::Rope(config, head_dim).forward(x, position).view({2, head_dim / 2}).to(torch::kFloat64);
  std::vector<double> angles;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) angles.push_back(std::atan2(y[1][i].item<double>(), y[0][i].item<double>()));
  return angles;
}

// Su et al. 2021: pair i turns by theta^(-2i/D) per position.
double plain_angle(double theta, std::int64_t head_dim, std::size_t i) {
  return std::exp(-std::log(theta) * 2 * static_cast<double>(i) / static_cast<double>(head_dim));
}

// The difference of two angles, a multiple of a full turn apart or not.
double apart(double a, double b) { return std::abs(std::remainder(a - b, 2 * std::numbers::pi)); }

TEST(Rope, LinearScalingDividesPositions) {
  const layer::RopeConfig config{.kind = layer::RopeConfig::Kind::kLinear, .theta = 10000, .factor = 2.5};
  for (const std::int64_t position : {1, 10, 3000}) {
    const auto angles = rope_angles(config, 64, position);
    for (std::size_t i = 0; i < angles.size(); ++i) {
      EXPECT_LT(apart(angles[i], static_cast<double>(position) / 2.5 * plain_angle(10000, 64, i)), 5e-7 * static_cast<double>(position))
          << i;
    }
  }
}

// Llama 3.1: pairs that turn more than `high` times within the original context are left alone, those that turn less than `low` times are
// slowed down by the factor, and between the two the slowing is blended by the number of turns.
double llama3_angle(double plain, double original, double factor, double low, double high) {
  const double turns = plain * original / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return plain * kept + plain / factor * (1 - kept);
}

TEST(Rope, Llama3ScalingSlowsLongWavelengthsOnly) {
  const layer::RopeConfig config{.kind = layer::RopeConfig::Kind::kLlama3,
                                 .theta = 500000,
                                 .factor = 8,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4,
                                 .original_positions = 8192};
  std::array<int, 3> kinds{};  // kept, blended, slowed
  for (const std::int64_t position : {1, 10, 3000}) {
    const auto angles = rope_angles(config, 128, position);
    for (std::size_t i = 0; i < angles.size(); ++i) {
      const double plain = plain_angle(500000, 128, i);
      const double angle = llama3_angle(plain, 8192, 8, 1, 4);
      EXPECT_LT(apart(angles[i], static_cast<double>(position) * angle), 5e-7 * static_cast<double>(position)) << i;
      kinds[angle == plain ? 0 : angle == plain / 8 ? 2 : 1] += 1;
    }
  }
  for (const int count : kinds) EXPECT_GT(count, 0);
}

// ROPE_INIT_FUNCTIONS of transformers 4.45.2, for the two configs above.
TEST(Rope, HasTheFrequenciesOfTransformers) {
  const std::map<std::size_t, double> llama3 = {{0, 1.0},
                                                {1, 0.8146172165870667},
                                                {16, 0.03760603070259094},
                                                {28, 0.0032114461064338684},
                                                {29, 0.0021665706299245358},
                                                {32, 0.0005248460220173001},
                                                {35, 9.556212171446532e-05},
                                                {36, 7.784655463183299e-05},
                                                {63, 3.068925877869333e-07}};
  const auto angles = rope_angles({.kind = layer::RopeConfig::Kind::kLlama3, .theta = 500000, .factor = 8}, 128, 1);
  for (const auto& [i, expected] : llama3) EXPECT_NEAR(angles[i], expected, 3e-7 * expected) << i;
  const std::map<std::size_t, double> linear = {
      {0, 0.4000000059604645}, {1, 0.2999576926231384}, {10, 0.022493651136755943}, {31, 5.3340860176831484e-05}};
  const auto divided = rope_angles({.kind = layer::RopeConfig::Kind::kLinear, .factor = 2.5}, 64, 1);
  for (const auto& [i, expected] : linear) EXPECT_NEAR(divided[i], expected, 3e-7 * expected) << i;
}

torch::Tensor random_heads(std::int64_t heads, std::int64_t length) { return torch::randn({2, heads, length, 8}).requires_grad_(true); }

constexpr std::int64_t kOneBlock = 70;
constexpr std::int64_t kSeveralBlocks = 1000;  // with 2 texts and 4 heads

// Two ways to compute attention of queries, keys and values, and their gradients.
template <typename Whole, typename Blocks>
void expect_same_attention(std::int64_t length, std::int64_t before, const Whole& whole, const Blocks& blocks) {
  auto q = random_heads(4, length);
  auto k = random_heads(2, length + before);
  auto v = random_heads(2, length + before);
  const auto probe = torch::randn({2, 4, length, 8});
  const auto expected = whole(q, k, v);
  const auto got = blocks(q, k, v);
  EXPECT_LT(relative(got, expected), 1e-5);
  const auto expected_gradients = torch::autograd::grad({(expected * probe).sum()}, {q, k, v});
  const auto gradients = torch::autograd::grad({(got * probe).sum()}, {q, k, v});
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_LT(relative(gradients[i], expected_gradients[i]), 1e-5) << i;
}

TEST(CausalAttention, ByBlocksIsThatOfTheWholeMatrixAndSoAreItsGradients) {
  torch::manual_seed(1);
  const auto whole = [](const auto& q, const auto& k, const auto& v) {
    return torch::matmul(layer::causal_attention_weights(q, k), layer::repeat_groups(v, 4));
  };
  for (const std::int64_t length : {kOneBlock, kSeveralBlocks}) {
    for (const std::int64_t before : {0, 5}) expect_same_attention(length, before, whole, layer::causal_attention_by_blocks);
  }
}

layer::ForwardContext training_of_two() {
  layer::ForwardContext at;
  at.seed = 1;
  at.epoch = 2;
  at.step = 3;
  at.samples = {4, 5};
  return at;
}

TEST(CausalAttention, WithDropoutDropsTheScoresThatDropoutOfTheWholeMatrixDrops) {
  torch::manual_seed(1);
  const auto at = training_of_two();
  const auto whole = [&](const auto& q, const auto& k, const auto& v) {
    return torch::matmul(layer::dropout(layer::causal_attention_weights(q, k), 0.2, at, "x"), layer::repeat_groups(v, 4));
  };
  const auto blocks = [&](const auto& q, const auto& k, const auto& v) {
    return layer::causal_attention_with_dropout(q, k, v, 0.2, at, "x");
  };
  for (const std::int64_t length : {kOneBlock, kSeveralBlocks}) {
    for (const std::int64_t before : {0, 5}) expect_same_attention(length, before, whole, blocks);
  }
}

TEST(CausalAttention, WithDropoutIsTheSameForTheSameKeysOnly) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto q = random_heads(4, kOneBlock);
  const auto attended = [&](const layer::ForwardContext& at, double p = 0.2, const char* name = "x") {
    return layer::causal_attention_with_dropout(q, q, q, p, at, name);
  };
  auto at = training_of_two();
  const auto first = attended(at);
  EXPECT_TRUE(torch::equal(attended(at), first));
  EXPECT_FALSE(torch::equal(attended(at, 0.2, "y"), first));
  at.step = 4;
  EXPECT_FALSE(torch::equal(attended(at), first));
  EXPECT_TRUE(torch::equal(attended(at, 0), layer::causal_attention(q, q, q)));
  at.training = false;
  EXPECT_TRUE(torch::equal(attended(at), layer::causal_attention(q, q, q)));
}

// Bytes that LibTorch holds on the CPU for this thread's work, and the most it held.
class MemoryMeter final : public c10::MemoryReportingInfoBase {
 public:
#if TORCH_VERSION_MAJOR >= 2
  using Total = std::size_t;
#else
  using Total = std::int64_t;
#endif
  void reportMemoryUsage(void*, std::int64_t bytes, Total, Total, c10::Device) override {
    held_ += bytes;
    most = std::max(most, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t most = 0;

 private:
  std::int64_t held_ = 0;
};

TEST(CausalAttention, WithDropoutNeverHoldsAllScores) {
  constexpr std::int64_t kHeads = 4;
  constexpr std::int64_t kLength = 4096;
  torch::manual_seed(1);
  auto at = training_of_two();
  at.samples = {4};
  const auto q = torch::randn({1, kHeads, kLength, 8}).requires_grad_(true);
  const auto meter = std::make_shared<MemoryMeter>();
  {
    const c10::DebugInfoGuard measured(c10::DebugInfoKind::PROFILER_STATE, meter);
    layer::causal_attention_with_dropout(q, q, q, 0.1, at, "x").sum().backward();
  }
  EXPECT_GT(meter->most, q.numel() * 4) << "it measures";
  EXPECT_LT(meter->most, kHeads * kLength * kLength * 4) << "one matrix of scores";
}

TEST(CausalAttention, LetsNoTokenSeeALaterOne) {
  torch::manual_seed(2);
  const auto q = torch::randn({1, 2, 40, 4});
  const auto k = torch::randn({1, 2, 40, 4});
  const auto v = torch::randn({1, 2, 40, 4});
  for (const auto attention : {layer::causal_attention, layer::causal_attention_by_blocks}) {
    const auto other_key = k.clone();
    const auto other_value = v.clone();
    other_key.narrow(2, 20, 20).fill_(3);
    other_value.narrow(2, 20, 20).fill_(3);
    const auto before = attention(q, k, v);
    const auto after = attention(q, other_key, other_value);
    EXPECT_LT(relative(after.narrow(2, 0, 20), before.narrow(2, 0, 20)), 1e-6);
    EXPECT_GT(relative(after.narrow(2, 20, 20), before.narrow(2, 20, 20)), 0.1);
  }
}

}  // namespace
}  // namespace epipe::model
