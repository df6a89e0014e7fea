#include "epipe/train/local_trainer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/bounded_json.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/layer/batch_norm.h"
#include "epipe/model/named_tensors.h"
#include "epipe/pipeline/checked.h"
#include "epipe/train/loss.h"
#include "epipe/train/metrics.h"
#include "epipe/train/step_json.h"

namespace epipe::train {
namespace {

using pipeline::Pipeline;
using pipeline::StepResult;
using pipeline::WorkerTimes;

std::vector<int> others(const Plan& plan, const std::vector<int>& here) {
  std::vector<int> elsewhere;
  if (here.empty()) return elsewhere;
  for (int w = 0; w < schedule::Placement{plan.place}.workers(); ++w) {
    if (std::find(here.begin(), here.end(), w) == here.end()) elsewhere.push_back(w);
  }
  return elsewhere;
}

codec::State clone(const codec::State& state) {
  codec::State copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.clone();
  return copy;
}

int worker_of_layer(const Plan& plan, std::size_t layer) {
  std::size_t stage = 0;
  while (stage < plan.cuts.size() && plan.cuts[stage] <= layer) ++stage;
  return plan.place[stage];
}

}  // namespace

LocalTrainer::LocalTrainer(const Plan& plan, const model::Model& model, LocalWorkers here)
    : plan_(plan), model_(model), own_(std::move(here)), config_(pipeline_config(plan)) {
  config_.remote.workers = others(plan_, own_.workers);
  config_.devices = own_.devices;
  config_.tracer = own_.tracer;
  config_.tap = own_.tap;
  config_.input_edge = own_.input_edge;
  config_ = pipeline::checked(config_, model_.layers.size());
  for (std::size_t l = 0; l < model_.layers.size(); ++l) {
    const int worker = worker_of_layer(plan_, l);
    if (config_.remote.has(worker)) {
      model_.layers[l] = nullptr;
    } else if (!own_.devices.empty()) {
      model_.layers[l]->to(own_.devices.at(static_cast<std::size_t>(worker)));
    }
  }
  make_optimizers();
  if (!own_.replicas) return;
  std::vector<std::shared_ptr<layer::Layer>> own;
  std::copy_if(model_.layers.begin(), model_.layers.end(), std::back_inserter(own), [](const auto& layer) { return layer != nullptr; });
  reducer_ = std::make_unique<Reducer>(std::move(own_.replicas), std::move(own), own_.bucket_bytes, own_.tracer);
  config_.exchange = reducer_.get();
}

LocalTrainer::~LocalTrainer() = default;

void LocalTrainer::connect(const LinkMaker& link, transport::Timeout timeout) {
  disconnect();
  forget_step();
  config_.remote.link = link;
  config_.remote.timeout = timeout;
  pipeline_ = std::make_unique<Pipeline>(model_.layers, config_, own_.loss ? own_.loss : make_loss(plan_.data));
  pipeline_->set_encoder_state(clone(encoders_));
}

void LocalTrainer::disconnect() { pipeline_ = nullptr; }

void LocalTrainer::forget_step() {
  pending_.reset();
  for (const auto& layer : model_.layers) {
    if (layer) layer->discard_batch();
  }
}

std::vector<std::shared_ptr<layer::Layer>> LocalTrainer::layers_of(int worker) const {
  std::vector<std::shared_ptr<layer::Layer>> own;
  for (std::size_t l = 0; l < model_.layers.size(); ++l) {
    if (model_.layers[l] && worker_of_layer(plan_, l) == worker) own.push_back(model_.layers[l]);
  }
  return own;
}

void LocalTrainer::make_optimizers() {
  optimizers_.clear();
  optimizers_.resize(static_cast<std::size_t>(config_.placement.workers()));
  for (const int worker : workers()) {
    NamedParameters parameters;
    for (const auto& layer : layers_of(worker)) {
      for (const auto& item : layer->named_parameters()) parameters.emplace_back(layer->full_name(item.key()), item.value());
    }
    optimizers_[static_cast<std::size_t>(worker)] = std::make_unique<Optimizer>(plan_.update, std::move(parameters));
  }
}

StepResult LocalTrainer::forward_backward(const layer::Batch& batch, const pipeline::StepId& id, const Update* known) {
  check_whole();
  forget_step();
  StepResult result;
  try {
    applied_ = known != nullptr;
    result = train_step(batch, id, known);
  } catch (...) {
    leave_replicas();
    throw;
  }
  pending_ = id.step;
  pending_encoders_ = clone(pipeline_->encoder_state());
  for (std::size_t w = 0; w < result.workers.size(); ++w) {
    if (!config_.remote.has(static_cast<int>(w))) result.workers[w].peak_memory_bytes = peak_memory_bytes();
  }
  return result;
}

StepResult LocalTrainer::train_step(const layer::Batch& batch, const pipeline::StepId& id, const Update* known) {
  if (batch.size() == 0 && reducer_) return sit_out(id.step);
  if (known == nullptr) return pipeline_->train_step(batch, id);
  return pipeline_->train_step(batch, id, [&](int worker, const auto&) { apply_to(worker, *known); });
}

void LocalTrainer::check_whole() const {
  if (applied_) throw std::logic_error("a step that failed has changed some of the weights; the run can only go back to a checkpoint");
}

// A batch with fewer samples than there are replicas: this one takes part in the sums only.
StepResult LocalTrainer::sit_out(std::uint64_t step) {
  StepResult result = no_result(plan_.cuts.size(), static_cast<std::size_t>(config_.placement.workers()));
  WorkerTimes& times = result.workers[static_cast<std::size_t>(workers().at(0))];
  const Span span(times.all_reduce, own_.tracer, workers().at(0), "all_reduce", step);
  times.all_reduce_bytes = reducer_->contribute_nothing(step);
  return result;
}

void LocalTrainer::leave_replicas() {
  if (reducer_) reducer_->leave();
}

StepResult LocalTrainer::evaluate(const layer::Batch& batch, const pipeline::StepId& id) { return pipeline_->evaluate(batch, id); }

std::map<std::string, double> LocalTrainer::squared_gradient_norms() const {
  std::map<std::string, double> norms;
  for (const int worker : workers()) {
    std::vector<std::string> names;
    std::vector<torch::Tensor> squares;  // read together: each reading waits for the device
    for (const auto& layer : layers_of(worker)) {
      for (const auto& item : layer->named_parameters()) {
        if (!item.value().grad().defined()) continue;
        names.push_back(layer->full_name(item.key()));
        squares.push_back(item.value().grad().to(torch::kFloat64).square().sum());
      }
    }
    if (names.empty()) continue;
    const auto values = torch::stack(squares).cpu();
    for (std::size_t i = 0; i < names.size(); ++i) norms[names[i]] = values[static_cast<std::int64_t>(i)].item<double>();
  }
  return norms;
}

void LocalTrainer::commit(std::uint64_t step, const Update& update) {
  if (step + 1 == steps_done_) return;
  if (pending_ != step || step != steps_done_) {
    throw std::logic_error(fmt::format("step {} cannot be committed: {} steps are done, and the gradients here are of {}", step,
                                       steps_done_, pending_ ? fmt::format("step {}", *pending_) : "no step"));
  }
  if (std::exchange(applied_, false)) {
    encoders_ = std::move(pending_encoders_);
  } else {
    update.skip ? skip() : apply(update);
  }
  if (plan_.loss_scaling) scaler_.update(update.skip);
  pending_.reset();
  ++steps_done_;
}

void LocalTrainer::apply_to(int worker, const Update& update) {
  optimizers_[static_cast<std::size_t>(worker)]->step(update.lr, update.scale);
  layer::commit_batch(layers_of(worker));
}

void LocalTrainer::apply(const Update& update) {
  if (pipeline_) {
    pipeline_->on_workers([&](int worker, const auto&) { apply_to(worker, update); });
  } else {  // the channels were lost between the gradients and the commit
    for (const int worker : workers()) {
      const boundary::OwnStream stream(config_.devices[static_cast<std::size_t>(worker)]);
      apply_to(worker, update);
      stream.synchronize();
    }
  }
  encoders_ = std::move(pending_encoders_);
}

void LocalTrainer::skip() {
  forget_step();
  if (pipeline_) pipeline_->set_encoder_state(clone(encoders_));
}

std::vector<int> LocalTrainer::workers() const {
  std::vector<int> here;
  for (int w = 0; w < config_.placement.workers(); ++w) {
    if (!config_.remote.has(w)) here.push_back(w);
  }
  return here;
}

NamedTensors LocalTrainer::weights() const { return weights_of(model_, plan_, workers()); }

NamedTensors weights_of(const model::Model& model, const Plan& plan, const std::vector<int>& workers) {
  NamedTensors all;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const auto& layer = model.layers[l];
    if (!layer || std::find(workers.begin(), workers.end(), worker_of_layer(plan, l)) == workers.end()) continue;
    for (const auto& item : layer->named_parameters()) all[layer->full_name(item.key())] = item.value().detach();
    for (const auto& item : layer->named_buffers()) all[layer->full_name(item.key())] = item.value();
  }
  return all;
}

void LocalTrainer::start_over(const NamedTensors& from) {
  applied_ = false;
  disconnect();
  forget_step();
  if (const auto loaded = model::load_into(from, weights()); !loaded) throw std::invalid_argument(loaded.error().message);
  make_optimizers();
  encoders_.clear();
  scaler_ = {};
  steps_done_ = 0;
}

Checkpoint LocalTrainer::checkpoint() const {
  check_whole();
  Checkpoint c{steps_done_, weights(), {}, encoders_, checkpoint_fingerprint(plan_).dump()};
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    if (!optimizers_[w]) continue;
    for (auto& [name, tensor] : optimizers_[w]->state()) c.optimizer[fmt::format("{}/{}", w, name)] = tensor;
  }
  if (plan_.loss_scaling) c.optimizer.merge(scaler_.state());
  return c;
}

void LocalTrainer::restore(const Checkpoint& c) {
  const auto parsed = parse_bounded_json(c.config);
  if (!parsed || !parsed.value().is_object()) throw std::invalid_argument("cannot resume, the checkpoint does not say of which run it is");
  const nlohmann::json& there = parsed.value();
  if (!there.contains("format")) {
    throw std::invalid_argument("cannot resume, the checkpoint is of an earlier version of epipe; continue with that one, or begin anew");
  }
  const std::string different = differences(checkpoint_fingerprint(plan_), there);
  if (!different.empty()) {
    throw std::invalid_argument(
        fmt::format("cannot resume, the checkpoint is of another run: {}; leave these flags out for the run's own values, or begin anew in "
                    "another --run-dir",
                    different));
  }
  applied_ = false;
  disconnect();
  forget_step();
  if (const auto loaded = model::load_into(c.model, weights()); !loaded) throw std::runtime_error(loaded.error().message);
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    const std::string prefix = fmt::format("{}/", w);
    NamedTensors own;
    for (const auto& [name, tensor] : c.optimizer) {
      if (name.starts_with(prefix)) own[name.substr(prefix.size())] = tensor;
    }
    if (optimizers_[w]) optimizers_[w]->set_state(own);
  }
  if (plan_.loss_scaling) scaler_.set_state(c.optimizer);
  encoders_ = clone(c.encoders);
  steps_done_ = c.step;
}

}  // namespace epipe::train
