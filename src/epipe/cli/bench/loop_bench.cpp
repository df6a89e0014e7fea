// epipe bench loop: steps of real models on one device, through the pipeline and in a plain loop over the same layers
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/cli/bench/benches.h"
#include "epipe/cli/command.h"
#include "epipe/layer/autocast.h"
#include "epipe/layer/memory_format.h"
#include "epipe/model/registry.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/loss.h"
#include "epipe/train/optimizer.h"

namespace epipe::cli {
namespace {

using layer::Batch;

struct LoopBenchFlags {
  std::vector<std::string> models = {"mobilenet_v2", "roberta-base"};
  std::string device = "cuda:0";
  std::string precision = "fp32";
  std::string codec = "none";
  int rounds = 10;
  int chunks = 1;
  bool json = false;
};

struct LoopSubject {
  std::string name;
  data::DataSpec data;
  Batch batch;
};

// Images [256,3,224,224], or sentences [32,128], on the device.
LoopSubject make_loop_subject(const std::string& model, const torch::Device& device) {
  LoopSubject subject{model, {}, {}};
  const bool text = model.starts_with("roberta") || model == "transformer";
  const std::int64_t size = text ? 32 : 256;
  if (text) {
    subject.data = {data::DataSpec::Kind::kText, {128}, 2, model == "transformer" ? 1000 : 50265};
    subject.batch.inputs = {torch::randint(3, 1000, {size, 128}, torch::TensorOptions(torch::kInt64).device(device))};
    subject.batch.side = {torch::ones({size, 128}, device)};
  } else {
    subject.data = {data::DataSpec::Kind::kImages, {3, 224, 224}, 10, 0};
    subject.batch.inputs = {torch::randn({size, 3, 224, 224}, device)};
  }
  subject.batch.targets = torch::randint(subject.data.classes, {size}, torch::TensorOptions(torch::kInt64).device(device));
  for (std::int64_t i = 0; i < size; ++i) subject.batch.samples.push_back(i);
  return subject;
}

constexpr double kLearningRate = 0.01;
constexpr int kStepsOfTurn = 4;

train::Optimizer make_optimizer(const std::vector<std::shared_ptr<layer::Layer>>& layers) {
  train::NamedParameters parameters;
  for (const auto& layer : layers) {
    for (const auto& item : layer->named_parameters()) parameters.emplace_back(layer->full_name(item.key()), item.value());
  }
  train::OptimizerConfig config;
  config.momentum = 0.9;
  return {config, std::move(parameters)};
}

// A plain LibTorch training loop: one stream, no cuts, channels-last throughout, PyTorch's own BatchNorm and dropout.
class PlainLoop {
 public:
  PlainLoop(const LoopSubject& subject, const torch::Device& device, layer::Precision precision)
      : subject_(subject),
        device_(device),
        precision_(precision),
        model_(model::builtin_models().make_model(subject.name, subject.data, 1)),
        loss_(train::make_loss(subject.data)) {
    for (const auto& layer : model_.layers) {
      layer->to(device);
      if (layer::wants_channels_last(device)) layer::to_channels_last(*layer);
    }
    optimizer_ = std::make_unique<train::Optimizer>(make_optimizer(model_.layers));
  }
  double time_one() {
    const Stopwatch watch;
    const layer::CastScope casts;
    layer::ForwardContext at;
    at.pipelined = false;
    at.samples = subject_.batch.samples;
    at.side = subject_.batch.side;
    layer::Tensors x = subject_.batch.inputs;
    if (layer::wants_channels_last(device_)) x = layer::channels_last(std::move(x));
    {
      const layer::Autocast autocast(device_.type(), precision_, true);
      for (const auto& layer : model_.layers) x = layer->forward(x, at);
    }
    for (auto& output : x) output = output.to(torch::kFloat32);
    const auto result = loss_(x, subject_.batch.targets);
    (result.sum / static_cast<double>(subject_.batch.size())).backward();
    optimizer_->step(kLearningRate);
    last_loss_ = result.sum.item<double>();  // waits for the device, like every loop that prints its loss
    if (device_.is_cuda()) torch::cuda::synchronize();
    return watch.seconds();
  }

 private:
  const LoopSubject& subject_;
  torch::Device device_;
  layer::Precision precision_;
  model::Model model_;
  pipeline::Loss loss_;
  std::unique_ptr<train::Optimizer> optimizer_;
  double last_loss_ = 0;
};

class PipelineSteps {
 public:
  PipelineSteps(const LoopSubject& subject, const pipeline::PipelineConfig& config)
      : subject_(subject),
        model_(model::builtin_models().make_model(subject.name, subject.data, 1)),
        pipeline_(model_.layers, config, train::make_loss(subject.data)),
        optimizers_(static_cast<std::size_t>(pipeline_.workers())) {
    pipeline_.on_workers([this](int worker, const std::vector<pipeline::Stage*>& stages) {
      std::vector<std::shared_ptr<layer::Layer>> layers;
      for (const auto* stage : stages) layers.insert(layers.end(), stage->layers().begin(), stage->layers().end());
      optimizers_[static_cast<std::size_t>(worker)] = std::make_unique<train::Optimizer>(make_optimizer(layers));
    });
  }
  double time_one() {
    const Stopwatch watch;
    pipeline_.train_step(subject_.batch, {0, step_++}, [this](int worker, const std::vector<pipeline::Stage*>& stages) {
      optimizers_[static_cast<std::size_t>(worker)]->step(kLearningRate);
      for (auto* stage : stages) stage->commit_batch();
    });
    return watch.seconds();
  }

 private:
  const LoopSubject& subject_;
  model::Model model_;
  pipeline::Pipeline pipeline_;
  std::vector<std::unique_ptr<train::Optimizer>> optimizers_;  // by worker
  std::uint64_t step_ = 0;
};

pipeline::PipelineConfig stages(const LoopBenchFlags& flags, const torch::Device& device, std::vector<std::size_t> cuts) {
  pipeline::PipelineConfig config;
  config.cuts = std::move(cuts);
  config.devices.assign(config.cuts.size() + 1, device);
  config.codecs.assign(config.cuts.size(), {flags.codec, flags.codec});
  config.precision = layer::parse_precision(flags.precision);
  config.chunks = flags.chunks;
  return config;
}

// For each round, the median time of a turn's steps in milliseconds.
struct Times {
  std::vector<double> plain, one, two;
};

// The three take turns, in a different order every round. A turn is several consecutive steps, as in training; the first does not count,
// because the others' threads ran just before it.
Times measure(const LoopSubject& subject, const LoopBenchFlags& flags, const torch::Device& device, std::size_t cut) {
  PlainLoop plain(subject, device, layer::parse_precision(flags.precision));
  PipelineSteps one(subject, stages(flags, device, {}));
  PipelineSteps two(subject, stages(flags, device, {cut}));
  Times times;
  const auto take_turn = [](auto& steps, std::vector<double>& turns) {
    steps.time_one();
    std::vector<double> turn(kStepsOfTurn);
    for (double& milliseconds : turn) milliseconds = 1e3 * steps.time_one();
    turns.push_back(median(turn));
  };
  constexpr int kWarmUp = 1;
  for (int round = 0; round < flags.rounds + kWarmUp; ++round) {
    for (int turn = 0; turn < 3; ++turn) {
      switch ((round + turn) % 3) {
        case 0: take_turn(plain, times.plain); break;
        case 1: take_turn(one, times.one); break;
        default: take_turn(two, times.two); break;
      }
    }
    if (round < kWarmUp) times = {};
  }
  return times;
}

// Ratios within one round: if the host is slow for a while, it is slow for both.
struct Ratios {
  double quarter, middle, three_quarters;

  Ratios(const std::vector<double>& of, const std::vector<double>& to) {
    std::vector<double> all;
    for (std::size_t i = 0; i < of.size(); ++i) all.push_back(of[i] / to[i]);
    std::sort(all.begin(), all.end());
    quarter = all[all.size() / 4];
    middle = all[all.size() / 2];
    three_quarters = all[all.size() * 3 / 4];
  }
};

void report_loop(const LoopSubject& subject, const LoopBenchFlags& flags, std::size_t cut, const Times& times) {
  const Ratios speed(times.plain, times.one);
  const Ratios cost(times.two, times.one);
  if (flags.json) {
    const nlohmann::json line = {{"model", subject.name},
                                 {"batch", subject.batch.size()},
                                 {"device", flags.device},
                                 {"precision", flags.precision},
                                 {"chunks", flags.chunks},
                                 {"codec", flags.codec},
                                 {"cut", cut},
                                 {"rounds", flags.rounds},
                                 {"plain_ms", median(times.plain)},
                                 {"one_stage_ms", median(times.one)},
                                 {"two_stages_ms", median(times.two)},
                                 {"one_stage_of_plain", speed.middle},
                                 {"one_stage_of_plain_quartiles", {speed.quarter, speed.three_quarters}},
                                 {"two_stages_over_one", cost.middle - 1},
                                 {"two_stages_over_one_quartiles", {cost.quarter - 1, cost.three_quarters - 1}}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<14} {:<5} plain loop {:8.2f} ms, one stage {:8.2f} ms ({:.3f} of its speed), two stages {:8.2f} ms ({:+.1f} %)\n",
               subject.name, flags.precision, median(times.plain), median(times.one), speed.middle, median(times.two),
               100 * (cost.middle - 1));
  }
  std::fflush(stdout);
}

void run_loop_bench(const LoopBenchFlags& flags) {
  const torch::Device device(flags.device);
  if (device.is_cuda() && !torch::cuda::is_available()) {
    throw UsageError(fmt::format("--device {}: this machine or this build has no CUDA device", flags.device));
  }
  for (const std::string& name : flags.models) {
    try {
      const LoopSubject subject = make_loop_subject(name, device);
      const std::size_t cut = model::builtin_models().architecture(name, subject.data).layers.size() / 2;
      report_loop(subject, flags, cut, measure(subject, flags, device, cut));
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
  }
}

}  // namespace

void add_loop_bench(CLI::App& bench) {
  auto flags = std::make_shared<LoopBenchFlags>();  // owned by the callback as well
  auto* command = bench.add_subcommand("loop", "Training steps on one device: one and two stages against a plain LibTorch loop");
  command->add_option("--model", flags->models, "Models; images are [256,3,224,224], sentences [32,128]")->capture_default_str();
  command->add_option("--device", flags->device, "Device of all stages")->capture_default_str();
  command->add_option("--precision", flags->precision, "fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_option("--codec", flags->codec, "Codec at the cut between the two stages")->capture_default_str();
  command->add_option("--chunks", flags->chunks, "Micro-batches per batch in the pipelines")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, fmt::format("Turns of each kind; {} steps of a turn are timed", kStepsOfTurn))
      ->check(positive_number())
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object per row");
  command->callback([flags] { run_loop_bench(*flags); });
}

}  // namespace epipe::cli
