#include "epipe/train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "epipe/model/costs.h"
#include "epipe/model/named_tensors.h"
#include "epipe/train/learned_codecs.h"

namespace epipe::train {
namespace {

using pipeline::Pipeline;
using pipeline::Stage;
using pipeline::StepResult;

data::Splits open_data(const TrainConfig& config) {
  if (config.data != "synthetic") throw std::invalid_argument(fmt::format("unknown data \"{}\"; known is synthetic", config.data));
  const bool text = model::takes_text(config.model);
  return data::make_synthetic(text ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages, config.seed);
}

std::vector<std::size_t> choose_cuts(const TrainConfig& config, const model::Model& model, const data::Dataset& data) {
  std::vector<std::size_t> cuts;
  for (const std::string& cut : config.cuts) cuts.push_back(model::resolve_cut(cut, model));
  if (!cuts.empty()) return cuts;
  const std::int64_t first = 0;
  const layer::Batch sample = data.batch({&first, 1});
  layer::ForwardContext at;
  at.training = false;
  at.samples = sample.samples;
  at.side = sample.side;
  return model::balanced_cuts(model, sample.inputs, at, static_cast<int>(config.place.size()));
}

std::vector<pipeline::CutCodecs> choose_codecs(const TrainConfig& config, std::size_t cuts) {
  pipeline::CutCodecs everywhere{config.codec_forward.empty() ? config.codec : config.codec_forward,
                                 config.codec_backward.empty() ? config.codec : config.codec_backward};
  std::vector<pipeline::CutCodecs> codecs(cuts, everywhere);
  for (const CodecAt& at : config.codec_at) {
    if (at.cut >= cuts) throw std::invalid_argument(fmt::format("--codec-at names cut {}, but there are {} cuts, from 0", at.cut, cuts));
    (at.forward ? codecs[at.cut].forward : codecs[at.cut].backward) = at.spec;
  }
  return codecs;
}

pipeline::LossResult cross_entropy(const layer::Tensors& outputs, const torch::Tensor& targets) {
  const auto& logits = outputs[0];
  return {torch::nll_loss(torch::log_softmax(logits, -1), targets, {}, at::Reduction::Sum),
          static_cast<double>(logits.argmax(-1).eq(targets).sum().item<std::int64_t>())};
}

// What a resumed run must have in common with the one it continues.
std::string fingerprint(const TrainConfig& c, const pipeline::PipelineConfig& p) {
  std::string codecs;
  for (const auto& codec : p.codecs) codecs += fmt::format("{}|{} ", codec.forward, codec.backward);
  return fmt::format(
      "model={} data={} cuts={} place={} chunks={} schedule={} codecs={}recompute={} threads={} batch={} epochs={} optimizer={} "
      "momentum={} "
      "nesterov={} weight_decay={} lr={} lr_schedule={} lr_power={} warmup={} clip={} seed={} shuffle={}",
      c.model, c.data, fmt::join(p.cuts, ","), fmt::join(c.place, ","), c.chunks, c.schedule, codecs, c.recompute, c.threads, c.batch,
      c.epochs, c.optimizer, c.update.momentum, c.update.nesterov, c.update.weight_decay, c.lr, c.lr_schedule, c.lr_power, c.warmup, c.clip,
      c.seed, c.shuffle);
}

// Calls work(full name, parameter) for every parameter of the stages.
template <typename Work>
void for_parameters(const std::vector<Stage*>& stages, const Work& work) {
  for (const Stage* stage : stages) {
    for (const auto& layer : stage->layers()) {
      for (const auto& item : layer->named_parameters()) work(layer->full_name(item.key()), item.value());
    }
  }
}

}  // namespace

Run::Run(const TrainConfig& config, Tracer* tracer)
    : config_(config), data_(open_data(config)), model_(model::make_model(config.model, data_.train->spec(), config.seed)) {
  if (config_.batch < config_.chunks) {
    throw std::invalid_argument(fmt::format("a batch of {} cannot be split into {} chunks", config_.batch, config_.chunks));
  }
  auto p = pipeline_config(tracer);
  fingerprint_ = fingerprint(config_, p);
  for (const auto& codec : p.codecs) codec_names_.push_back({codec.forward, codec.backward});
  for (const std::size_t cut : p.cuts) cut_names_.push_back(cut < model_.layers.size() ? model_.layers[cut]->name() : "");
  const std::int64_t first = 0;
  insert_learned_codecs(model_, p, data_.train->batch({&first, 1}));
  pipeline_ = std::make_unique<Pipeline>(model_.layers, p, cross_entropy);
  make_optimizers();
  lr_.kind = parse_lr_schedule(config_.lr_schedule);
  lr_.base = config_.lr;
  lr_.power = config_.lr_power;
  lr_.warmup_steps = config_.warmup;
  lr_.total_steps = static_cast<std::int64_t>(all_steps());
}

pipeline::PipelineConfig Run::pipeline_config(Tracer* tracer) const {
  pipeline::PipelineConfig p;
  p.cuts = choose_cuts(config_, model_, *data_.train);
  p.placement = {config_.place};
  const auto policy = schedule::parse_policy(config_.schedule);
  if (!policy) throw std::invalid_argument(policy.error().message);
  p.policy = policy.value();
  p.chunks = config_.chunks;
  p.threads = config_.threads;
  for (const std::string& device : config_.devices) p.devices.emplace_back(device);
  p.codecs = choose_codecs(config_, p.cuts.size());
  p.recompute = config_.recompute;
  p.tracer = tracer;
  p.seed = config_.seed;
  return p;
}

void Run::make_optimizers() {
  OptimizerConfig update = config_.update;
  update.kind = parse_optimizer(config_.optimizer);
  optimizers_.resize(static_cast<std::size_t>(pipeline_->workers()));
  pipeline_->on_workers([&](int worker, const std::vector<Stage*>& stages) {
    NamedParameters parameters;
    for_parameters(stages, [&](const std::string& name, const torch::Tensor& p) { parameters.emplace_back(name, p); });
    optimizers_[static_cast<std::size_t>(worker)] = std::make_unique<Optimizer>(update, std::move(parameters));
  });
}

int Run::chunks_for(const layer::Batch& batch) const { return static_cast<int>(std::min<std::int64_t>(config_.chunks, batch.size())); }

StepResult Run::forward_backward(const data::LoadedBatch& loaded, bool measure_error) {
  return pipeline_->train_step(loaded.batch, {loaded.epoch, loaded.step, chunks_for(loaded.batch), measure_error});
}

void Run::update(std::uint64_t step) {
  const double scale = config_.clip > 0 ? clip_scale() : 1;
  pipeline_->on_workers([&](int worker, const std::vector<Stage*>& stages) {
    if (scale < 1) {
      const torch::NoGradGuard no_grad;
      for_parameters(stages, [&](const std::string&, const torch::Tensor& p) {
        if (p.grad().defined()) p.grad().mul_(scale);
      });
    }
    optimizers_[static_cast<std::size_t>(worker)]->step(lr(step));
  });
  pipeline_->commit_batch();
}

// Squared norms parameter by parameter in float64, summed in model order: the same for every placement.
double Run::clip_scale() const {
  double total = 0;
  for (const auto& layer : model_.layers) {
    for (const auto& p : layer->parameters()) {
      if (p.grad().defined()) total += p.grad().to(torch::kFloat64).square().sum().item<double>();
    }
  }
  return std::min(1.0, config_.clip / (std::sqrt(total) + 1e-6));
}

EpochResult Run::validate(std::uint64_t epoch, std::uint64_t step) {
  double loss = 0;
  double correct = 0;
  const std::int64_t size = data_.validation->size();
  for (std::int64_t begin = 0; begin < size; begin += config_.batch) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = begin; i < std::min(size, begin + config_.batch); ++i) ids.push_back(i);
    const layer::Batch batch = data_.validation->batch(ids);
    const StepResult part = pipeline_->evaluate(batch, {epoch, step, chunks_for(batch)});
    loss += part.loss * static_cast<double>(part.samples);
    correct += part.correct;
  }
  EpochResult result;
  result.epoch = epoch;
  result.val_loss = loss / static_cast<double>(size);
  result.val_accuracy = correct / static_cast<double>(size);
  return result;
}

NamedTensors Run::weights() const { return model::tensors_of(model_); }

void Run::load_weights(const NamedTensors& from) {
  if (const auto loaded = model::load_into(from, weights()); !loaded) throw std::runtime_error(loaded.error().message);
}

std::vector<std::string> Run::load_file(const std::string& path, model::NewParts new_parts) {
  auto file = model::read_weights(path);
  if (!file) throw std::runtime_error(file.error().message);
  auto notes = model::load_weights(model_, std::move(file).value(), new_parts);
  if (!notes) throw std::runtime_error(fmt::format("{}: {}", path, notes.error().message));
  return std::move(notes).value();
}

Checkpoint Run::checkpoint(std::uint64_t steps_done) const {
  Checkpoint c{steps_done, weights(), {}, pipeline_->encoder_state(), fingerprint_};
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    for (auto& [name, tensor] : optimizers_[w]->state()) c.optimizer[fmt::format("{}/{}", w, name)] = tensor;
  }
  return c;
}

void Run::restore(const Checkpoint& c) {
  if (c.config != fingerprint_) {
    throw std::invalid_argument(
        fmt::format("cannot resume: the checkpoint was made with\n  {}\nthis run has\n  {}", c.config, fingerprint_));
  }
  load_weights(c.model);
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    const std::string prefix = fmt::format("{}/", w);
    NamedTensors own;
    for (const auto& [name, tensor] : c.optimizer) {
      if (name.starts_with(prefix)) own[name.substr(prefix.size())] = tensor;
    }
    optimizers_[w]->set_state(own);
  }
  pipeline_->set_encoder_state(c.encoders);
}

}  // namespace epipe::train
