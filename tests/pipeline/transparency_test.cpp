// With the codec none, a model cut into stages computes what one stage computes: every gradient, every parameter, every running
// statistic, bit for bit.
#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;

struct Case {
  std::string model;
  std::vector<std::size_t> cuts;
  std::vector<int> placement;
  std::string schedule;
  bool recompute;
  layer::Precision precision = layer::Precision::kFp32;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.model << ", " << c.cuts.size() + 1 << " stages on " << schedule::to_string(schedule::Placement{c.placement}) << ", "
         << c.schedule << (c.recompute ? ", recompute, " : ", ") << layer::to_string(c.precision);
  }
};

bool takes(const std::string& schedule, const std::vector<int>& placement) {
  return schedule::check(schedule::find_generator(schedule).value(), {placement}).ok();
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string model : {"mlp", "cnn", "transformer"}) {
    for (const auto& [cuts, placement] :
         std::vector<std::pair<std::vector<std::size_t>, std::vector<int>>>{{{2}, {0, 1}},                 // chain of 2
                                                                            {{1, 3}, {0, 1, 0}},           // the client/server ring
                                                                            {{1, 2}, {0, 1, 2}},           // chain of 3
                                                                            {{1, 2, 3}, {0, 1, 2, 3}},     // chain of 4
                                                                            {{1, 2, 3}, {0, 1, 2, 0}},     // ring of 3 workers
                                                                            {{1, 2, 3}, {0, 0, 1, 1}}}) {  // several stages per worker
      for (const std::string& schedule : schedule::schedule_names()) {
        if (!takes(schedule, placement)) continue;
        for (const bool recompute : {false, true}) cases.push_back({model, cuts, placement, schedule, recompute});
      }
    }
  }
  return cases;
}

// Real architectures, small: two tensors per cut, a side input, skip connections, BatchNorm and dropout.
std::vector<Case> architectures() {
  return {{"mobilenet_v2", {1, 18}, {0, 1, 0}, "1f1b", false},
          {"mobilenet_v2", {5, 12}, {0, 1, 2}, "gpipe", true},
          {"resnet18", {1, 5}, {0, 1, 2}, "1f1b", false},
          {"amoebanet_d:3x16", {3, 6}, {0, 1, 0}, "gpipe", false},
          {"amoebanet_d:3x16", {2, 4, 7}, {0, 1, 2, 3}, "1f1b", true},
          {"mobilenet_v2", {5, 12}, {0, 1, 2}, "zb-h1", false},
          {"resnet18", {1, 5}, {0, 1, 2}, "zb-h1", true},
          {"amoebanet_d:3x16", {2, 4, 7}, {0, 1, 2, 3}, "zb-h1", false},
          {"roberta", {1, 3, 5}, {0, 1, 2, 3}, "zb-h1", false},
          {"roberta", {2, 4}, {0, 1, 0}, "1f1b", false},
          {"roberta", {1, 3, 5}, {0, 1, 2, 3}, "gpipe", true}};
}

// Mixed precision: tensors cross a cut in the type that flows between layers.
std::vector<Case> half_precision() {
  std::vector<Case> cases;
  for (const Case& c : all_cases()) {
    if (c.model == "mlp" || c.placement == std::vector<int>{0, 1, 2}) continue;
    cases.push_back(c);
    cases.back().precision = layer::Precision::kBf16;
  }
  for (Case c : architectures()) {
    c.precision = layer::Precision::kBf16;
    // AmoebaNet leaves the finite numbers in bf16 at this rate.
    if (!c.model.starts_with("amoebanet")) cases.push_back(c);
  }
  return cases;
}

class Transparency : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Pipelines, Transparency, ::testing::ValuesIn(all_cases()));
INSTANTIATE_TEST_SUITE_P(Architectures, Transparency, ::testing::ValuesIn(architectures()));
INSTANTIATE_TEST_SUITE_P(HalfPrecision, Transparency, ::testing::ValuesIn(half_precision()));

const data::DataSpec kPhotos{data::DataSpec::Kind::kImages, {3, 40, 40}, 5};

model::Model make(const std::string& name, const data::DataSpec& data) {
  if (name != "roberta") return make_model(name, data, 7);
  const TempFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 20, "type_vocab_size": 1})";
  return make_model("roberta:" + folder.path(), data, 7);
}

struct Trained {
  std::map<std::string, torch::Tensor> tensors;  // parameters, buffers and the last gradients, by full name
  std::vector<double> losses;
};

// A few steps of plain gradient descent, so that every step depends on all before it.
Trained train(const std::string& name, PipelineConfig config) {
  const bool photos = name == "mobilenet_v2" || name == "resnet18";
  const auto& data = name == "transformer" || name == "roberta" ? kText : photos ? kPhotos : kImages;
  const double rate = photos ? 1e-3 : 0.1;  // deep networks with BatchNorm over a few small maps leave the finite numbers otherwise
  const auto model = make(name, data);
  config.chunks = 4;
  config.seed = 11;
  Pipeline pipeline(model.layers, config, classification_loss);
  Trained trained;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto batch = random_batch(data, 10, step, static_cast<std::int64_t>(10 * step));  // 10 samples in 4 chunks: 3, 3, 2, 2
    trained.losses.push_back(pipeline.train_step(batch, {0, step}).loss);
    pipeline.on_workers([rate](int, const std::vector<Stage*>& stages) {
      const torch::NoGradGuard no_grad;
      for (const Stage* stage : stages) {
        for (const auto& layer : stage->layers()) {
          for (auto& p : layer->parameters()) p.sub_(p.grad(), rate);
        }
      }
    });
    pipeline.commit_batch();
  }
  trained.losses.push_back(pipeline.evaluate(random_batch(data, 9, 99), {0, 3}).loss);
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) {
      trained.tensors[layer->full_name(item.key())] = item.value().detach().clone();
      trained.tensors[layer->full_name(item.key()) + " gradient"] = item.value().grad().clone();
    }
    for (const auto& item : layer->named_buffers()) trained.tensors[layer->full_name(item.key())] = item.value().clone();
  }
  return trained;
}

TEST_P(Transparency, StagesEqualOneStageBitForBit) {
  const Case& c = GetParam();
  PipelineConfig single;
  single.precision = c.precision;
  const Trained expected = train(c.model, single);
  PipelineConfig config;
  config.cuts = c.cuts;
  config.placement = {c.placement};
  config.schedule = c.schedule;
  config.recompute = c.recompute;
  config.precision = c.precision;
  const Trained actual = train(c.model, config);
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(torch::equal(actual.tensors.at(name), tensor)) << name;
  EXPECT_EQ(actual.losses, expected.losses);
}

// As a far server has it: costs with a delay, and more or fewer micro-batches in flight than the schedule would have.
TEST(Pipeline, NeitherWhatIsInFlightNorTheCostsChangeABit) {
  const Trained expected = train("cnn", {});
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (const int in_flight : {1, 2, 3, 4, 100}) {
      PipelineConfig config;
      config.cuts = {1, 3};
      if (schedule != "zb-h1") config.placement = {{0, 1, 0}};
      config.schedule = schedule;
      config.in_flight = in_flight;
      config.costs = {{0.1, 3, 0.1}, {0.1, 6, 0.1}, {0.5, 0.5}, {0.5, 0.5}, {}, {}, {20, 20}};
      const Trained actual = train("cnn", config);
      for (const auto& [name, tensor] : expected.tensors) {
        EXPECT_TRUE(torch::equal(actual.tensors.at(name), tensor)) << schedule << " " << in_flight << " " << name;
      }
      EXPECT_EQ(actual.losses, expected.losses);
    }
  }
}

TEST(Pipeline, HoldsNoMoreThanIsInFlight) {
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.cuts = {1, 3};
  config.placement = {{0, 1, 0}};
  config.chunks = 8;
  config.in_flight = 3;
  Pipeline pipeline(model.layers, config, classification_loss);
  const StepResult result = pipeline.train_step(random_batch(kImages, 8, 3), {});
  EXPECT_EQ(*std::max_element(result.peak_live.begin(), result.peak_live.end()), 3);
}

TEST(Pipeline, TwoEqualRunsGiveEqualWeights) {
  PipelineConfig config;
  config.cuts = {1, 3};
  config.placement = {{0, 1, 0}};
  config.codecs = {{"sort:6+2", "sort:6+2"}, {"power:2>uniform:8", "topk:0.1"}};
  const Trained a = train("cnn", config);
  const Trained b = train("cnn", config);
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(torch::equal(b.tensors.at(name), tensor)) << name;
}

TEST(Pipeline, ACodecChangesTheResult) {
  PipelineConfig config;
  config.cuts = {2};
  const Trained exact = train("cnn", config);
  config.codecs = {{"uniform:2", "none"}};
  EXPECT_NE(train("cnn", config).losses, exact.losses);
}

// The mean over the batch, whatever the chunks: against one backward of the whole batch by plain LibTorch.
TEST(Pipeline, LossAndGradientAreThoseOfTheWholeBatch) {
  const auto model = make_model("mlp", kImages, 7);
  const auto batch = random_batch(kImages, 11, 3);
  layer::Tensors x = batch.inputs;
  for (const auto& layer : model.layers) x = layer->forward(x, {});
  const auto loss = torch::nll_loss(torch::log_softmax(x[0], -1), batch.targets);
  loss.backward();
  std::vector<torch::Tensor> expected;
  for (const auto& layer : model.layers) {
    for (const auto& p : layer->parameters()) expected.push_back(p.grad().clone());
  }
  for (const int chunks : {1, 2, 3, 11}) {
    PipelineConfig config;
    config.cuts = {2};
    config.chunks = chunks;
    Pipeline pipeline(model.layers, config, classification_loss);
    const StepResult result = pipeline.train_step(batch, {});
    EXPECT_NEAR(result.loss, loss.item<double>(), 1e-6);
    EXPECT_EQ(result.samples, 11);
    std::size_t index = 0;
    for (const auto& layer : model.layers) {
      for (const auto& p : layer->parameters()) EXPECT_TRUE(torch::allclose(p.grad(), expected[index++], 1e-4, 1e-7)) << chunks;
    }
  }
}

TEST(Pipeline, MoreChunksThanSamplesIsAClearError) {
  const auto model = make_model("mlp", kImages, 7);
  PipelineConfig config;
  config.chunks = 5;
  Pipeline pipeline(model.layers, config, classification_loss);
  try {
    pipeline.train_step(random_batch(kImages, 4, 1), {});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("4 samples cannot be split into 5"), std::string::npos) << error.what();
  }
}

TEST(Pipeline, ConfigurationsThatDoNotFitAreRefused) {
  const auto model = make_model("cnn", kImages, 7);  // 5 layers
  const auto make = [&](PipelineConfig config) { Pipeline(model.layers, config, classification_loss); };
  PipelineConfig config;
  config.cuts = {5};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.cuts = {0};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.cuts = {2, 2};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.cuts = {2};
  config.placement = {{0, 1, 0}};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.placement = {{0, 2}};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.placement = {{0, 1}};
  config.codecs = {{"sort:6", "none"}};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.codecs = {};
  config.devices = {torch::Device(torch::kCPU)};
  EXPECT_THROW(make(config), std::invalid_argument);
  config.devices = {};
  config.schedule = "zig-zag";
  EXPECT_THROW(make(config), std::invalid_argument);
  config.schedule = "zb-h1";
  config.placement = {{0, 0}};
  EXPECT_THROW(make(config), std::invalid_argument);
}

TEST(Pipeline, CountsTheBytesOfEveryCutAndDirection) {
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.cuts = {1, 3};
  config.placement = {{0, 1, 0}};
  config.chunks = 2;
  config.codecs = {{"uniform:8", "none"}, {"fp16", "sort:3+1"}};
  Pipeline pipeline(model.layers, config, classification_loss);
  const StepResult result = pipeline.train_step(random_batch(kImages, 6, 1), {.measure_error = true});
  EXPECT_EQ(result.forward[0].values, 6U * 16 * 12 * 12);
  EXPECT_EQ(result.backward[0].values, 6U * 16 * 12 * 12);
  EXPECT_EQ(result.forward[1].values, 6U * 32 * 6 * 6);
  EXPECT_NEAR(result.forward[0].bits_per_value(), 8, 0.2);
  EXPECT_NEAR(result.backward[0].bits_per_value(), 32, 0.2);
  EXPECT_NEAR(result.forward[1].bits_per_value(), 16, 0.4);
  EXPECT_NEAR(result.backward[1].bits_per_value(), 4, 0.4);
  EXPECT_EQ(result.backward[0].rel_error(), 0);
  EXPECT_GT(result.forward[0].rel_error(), 0);
  EXPECT_LT(result.forward[0].rel_error(), 1e-3);
  const StepResult next = pipeline.train_step(random_batch(kImages, 6, 1), {0, 1});
  EXPECT_EQ(next.forward[0].wire_bytes, result.forward[0].wire_bytes) << "counts start anew with every step";
}

TEST(Pipeline, HoldsNoMoreMicroBatchesThanTheScheduleSays) {
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.cuts = {1, 2};
  config.chunks = 8;
  const std::map<std::string, std::vector<int>> peaks = {{"gpipe", {8, 8, 8}}, {"1f1b", {3, 2, 1}}, {"zb-h1", {3, 3, 3}}};
  for (const auto& [schedule, peak] : peaks) {
    config.schedule = schedule;
    Pipeline pipeline(model.layers, config, classification_loss);
    EXPECT_EQ(pipeline.train_step(random_batch(kImages, 16, 1), {}).peak_live, peak) << schedule;
  }
}

TEST(Pipeline, EvaluationLeavesEncodersAndStatisticsAlone) {
  const auto model = make_model("cnn", kImages, 7);
  PipelineConfig config;
  config.cuts = {2};
  config.codecs = {{"power:2", "none"}};
  Pipeline pipeline(model.layers, config, classification_loss);
  pipeline.train_step(random_batch(kImages, 6, 1), {});
  pipeline.commit_batch();
  const auto before = pipeline.encoder_state();
  ASSERT_FALSE(before.empty());
  std::vector<torch::Tensor> buffers;
  for (const auto& layer : model.layers) {
    for (const auto& b : layer->buffers()) buffers.push_back(b.clone());
  }
  const StepResult result = pipeline.evaluate(random_batch(kImages, 6, 2), {0, 1});
  EXPECT_EQ(result.predictions.size(0), 6);
  pipeline.commit_batch();
  for (const auto& [name, tensor] : pipeline.encoder_state()) EXPECT_TRUE(torch::equal(tensor, before.at(name))) << name;
  std::size_t index = 0;
  for (const auto& layer : model.layers) {
    for (const auto& b : layer->buffers()) EXPECT_TRUE(torch::equal(b, buffers[index++]));
  }
}

TEST(Pipeline, ReplaysAStepFromTheEncoderStateBeforeIt) {
  const auto run_second_step = [](bool interrupted) {
    const auto model = make_model("cnn", kImages, 7);
    PipelineConfig config;
    config.cuts = {1, 3};
    config.placement = {{0, 1, 0}};
    config.codecs = {{"power:2", "power:2"}, {"power:2>uniform:8", "none"}};
    Pipeline pipeline(model.layers, config, classification_loss);
    pipeline.train_step(random_batch(kImages, 6, 1), {0, 0});
    pipeline.commit_batch();
    const auto before = pipeline.encoder_state();
    if (interrupted) {
      pipeline.train_step(random_batch(kImages, 6, 55), {0, 1});
      pipeline.discard_batch();
      pipeline.set_encoder_state(before);
    }
    const double loss = pipeline.train_step(random_batch(kImages, 6, 2), {0, 1}).loss;
    pipeline.commit_batch();
    return std::pair{loss, model.layers[0]->buffers()[0].clone()};
  };
  const auto [loss, mean] = run_second_step(false);
  const auto [replayed_loss, replayed_mean] = run_second_step(true);
  EXPECT_EQ(replayed_loss, loss);
  EXPECT_TRUE(torch::equal(replayed_mean, mean));
}

}  // namespace
}  // namespace epipe::pipeline
