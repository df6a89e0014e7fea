#include "epipe/train/share.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

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

Share::Share(const Plan& plan, const model::Model& model, Here here)
    : plan_(plan), model_(model), here_(std::move(here)), config_(pipeline_config(plan)) {
  config_.elsewhere.workers = others(plan_, here_.workers);
  config_.devices = here_.devices;
  config_.tracer = here_.tracer;
  config_.tap = here_.tap;
  config_.input_edge = here_.input_edge;
  config_ = pipeline::checked(config_, model_.layers.size());
  for (std::size_t l = 0; l < model_.layers.size(); ++l) {
    const int worker = worker_of_layer(plan_, l);
    if (config_.elsewhere.has(worker)) {
      model_.layers[l] = nullptr;
    } else if (!here_.devices.empty()) {
      model_.layers[l]->to(here_.devices.at(static_cast<std::size_t>(worker)));
    }
  }
  make_optimizers();
  if (!here_.replicas) return;
  std::vector<std::shared_ptr<layer::Layer>> own;
  std::copy_if(model_.layers.begin(), model_.layers.end(), std::back_inserter(own), [](const auto& layer) { return layer != nullptr; });
  reducer_ = std::make_unique<Reducer>(std::move(here_.replicas), std::move(own), here_.bucket_bytes, here_.tracer);
  config_.exchange = reducer_.get();
}

Share::~Share() = default;

void Share::connect(const LinkMaker& link, transport::Patience patience) {
  disconnect();
  forget_step();
  config_.elsewhere.link = link;
  config_.elsewhere.patience = patience;
  pipeline_ = std::make_unique<Pipeline>(model_.layers, config_, make_loss(plan_.data));
  pipeline_->set_encoder_state(clone(encoders_));
}

void Share::disconnect() { pipeline_ = nullptr; }

void Share::forget_step() {
  pending_.reset();
  for (const auto& layer : model_.layers) {
    if (layer) layer->discard_batch();
  }
}

void Share::make_optimizers() {
  optimizers_.clear();
  optimizers_.resize(static_cast<std::size_t>(config_.placement.workers()));
  std::vector<NamedParameters> parameters(optimizers_.size());
  for (std::size_t l = 0; l < model_.layers.size(); ++l) {
    if (!model_.layers[l]) continue;
    auto& own = parameters[static_cast<std::size_t>(worker_of_layer(plan_, l))];
    for (const auto& item : model_.layers[l]->named_parameters()) own.emplace_back(model_.layers[l]->full_name(item.key()), item.value());
  }
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    if (!config_.elsewhere.has(static_cast<int>(w))) optimizers_[w] = std::make_unique<Optimizer>(plan_.update, std::move(parameters[w]));
  }
}

StepResult Share::forward_backward(const layer::Batch& batch, const pipeline::StepId& id) {
  forget_step();
  StepResult result;
  try {
    result = train_step(batch, id);
  } catch (...) {
    leave_replicas();
    throw;
  }
  pending_ = id.step;
  pending_encoders_ = clone(pipeline_->encoder_state());
  for (std::size_t w = 0; w < result.workers.size(); ++w) {
    if (!config_.elsewhere.has(static_cast<int>(w))) result.workers[w].peak_memory_bytes = peak_memory_bytes();
  }
  return result;
}

StepResult Share::train_step(const layer::Batch& batch, const pipeline::StepId& id) {
  if (batch.size() == 0 && reducer_) return sit_out(id.step);
  return pipeline_->train_step(batch, id);
}

// A batch with fewer samples than there are replicas: this one takes part in the sums only.
StepResult Share::sit_out(std::uint64_t step) {
  StepResult result = no_result(plan_.cuts.size(), static_cast<std::size_t>(config_.placement.workers()));
  WorkerTimes& times = result.workers[static_cast<std::size_t>(workers().at(0))];
  const Span span(times.all_reduce, here_.tracer, workers().at(0), "all_reduce", step);
  times.all_reduce_bytes = reducer_->contribute_nothing(step);
  return result;
}

void Share::leave_replicas() {
  if (reducer_) reducer_->leave();
}

StepResult Share::evaluate(const layer::Batch& batch, const pipeline::StepId& id) { return pipeline_->evaluate(batch, id); }

std::map<std::string, double> Share::squared_gradient_norms() const {
  std::map<std::string, double> norms;
  for (const auto& layer : model_.layers) {
    if (!layer) continue;
    for (const auto& item : layer->named_parameters()) {
      const auto& grad = item.value().grad();
      if (grad.defined()) norms[layer->full_name(item.key())] = grad.to(torch::kFloat64).square().sum().item<double>();
    }
  }
  return norms;
}

void Share::commit(std::uint64_t step, const Update& update) {
  if (step + 1 == steps_done_) return;
  if (pending_ != step || step != steps_done_) {
    throw std::logic_error(fmt::format("step {} cannot be committed: {} steps are done, and the gradients here are of {}", step,
                                       steps_done_, pending_ ? fmt::format("step {}", *pending_) : "no step"));
  }
  update.skip ? skip() : apply(update);
  if (plan_.loss_scaling) scaler_.update(update.skip);
  pending_.reset();
  ++steps_done_;
}

void Share::apply(const Update& update) {
  const auto step = [&](int worker) {
    if (optimizers_[static_cast<std::size_t>(worker)]) optimizers_[static_cast<std::size_t>(worker)]->step(update.lr, update.scale);
  };
  if (pipeline_) {
    pipeline_->on_workers([&](int worker, const auto&) { step(worker); });
  } else {  // the ways were lost between the gradients and the commit
    for (int w = 0; w < config_.placement.workers(); ++w) step(w);
  }
  for (const auto& layer : model_.layers) {
    if (layer) layer->commit_batch();
  }
  encoders_ = std::move(pending_encoders_);
}

void Share::skip() {
  forget_step();
  if (pipeline_) pipeline_->set_encoder_state(clone(encoders_));
}

std::vector<int> Share::workers() const {
  std::vector<int> here;
  for (int w = 0; w < config_.placement.workers(); ++w) {
    if (!config_.elsewhere.has(w)) here.push_back(w);
  }
  return here;
}

NamedTensors Share::weights() const { return weights_of(model_, plan_, workers()); }

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

void Share::start_over(const NamedTensors& from) {
  disconnect();
  forget_step();
  if (const auto loaded = model::load_into(from, weights()); !loaded) throw std::invalid_argument(loaded.error().message);
  make_optimizers();
  encoders_.clear();
  scaler_ = {};
  steps_done_ = 0;
}

Checkpoint Share::checkpoint() const {
  Checkpoint c{steps_done_, weights(), {}, encoders_, to_json(plan_).dump()};
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    if (!optimizers_[w]) continue;
    for (auto& [name, tensor] : optimizers_[w]->state()) c.optimizer[fmt::format("{}/{}", w, name)] = tensor;
  }
  if (plan_.loss_scaling) c.optimizer.merge(scaler_.state());
  return c;
}

void Share::restore(const Checkpoint& c) {
  const auto there = nlohmann::json::parse(c.config, nullptr, false);
  const std::string different = differences(to_json(plan_), there.is_object() ? there : nlohmann::json::object());
  if (!different.empty()) throw std::invalid_argument(fmt::format("cannot resume, the checkpoint is of another run: {}", different));
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
