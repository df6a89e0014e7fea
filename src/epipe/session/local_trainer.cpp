#include "epipe/session/local_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "epipe/base/memory.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/layer/batch_norm.h"
#include "epipe/model/named_tensors.h"
#include "epipe/pipeline/checked.h"
#include "epipe/session/step_result.h"

namespace epipe::session {
namespace {

using pipeline::Pipeline;
using pipeline::StepResult;
using pipeline::WorkerTimes;

constexpr std::uint32_t kMaxNumber = 1U << 30U;            // of a micro-batch
const std::string kPreviousWeights = "previous weights/";  // before their names in a checkpoint

codec::State clone(const codec::State& state) {
  codec::State copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.clone();
  return copy;
}

}  // namespace

NamedTensors weights_of(const layer::Layer& layer, bool trained_only) {
  NamedTensors all;
  for (const auto& item : layer.named_parameters()) {
    if (!trained_only || item.value().requires_grad()) all[layer.full_name(item.key())] = item.value().detach();
  }
  if (trained_only) return all;
  for (const auto& item : layer.named_buffers()) all[layer.full_name(item.key())] = item.value();
  return all;
}

LocalTrainer::LocalTrainer(LocalTrainerConfig config)
    : layers_(std::move(config.layers)),
      pipeline_config_(pipeline::checked(std::move(config.pipeline), layers_.size())),
      loss_(std::move(config.loss)),
      make_optimizer_(std::move(config.make_optimizer)),
      fingerprint_(std::move(config.fingerprint)),
      require_same_run_(std::move(config.require_same_run)),
      audit_(pipeline_config_.cuts.size(), [this](int stage, const std::string& name, const torch::Tensor& gradient) {
        const int worker = pipeline_config_.placement.worker_of[static_cast<std::size_t>(stage)];
        return optimizers_[static_cast<std::size_t>(worker)]->scale(name, gradient);
      }) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const int worker = worker_of_layer(l);
    if (pipeline_config_.remote.has(worker)) {
      layers_[l] = nullptr;
    } else {
      layers_[l]->to(pipeline_config_.devices.at(static_cast<std::size_t>(worker)));
    }
  }
  make_versions();
  make_optimizers();
  share_frozen();
  if (!config.replicas) return;
  Layers own;
  std::copy_if(layers_.begin(), layers_.end(), std::back_inserter(own), [](const auto& layer) { return layer != nullptr; });
  reducer_ = std::make_unique<Reducer>(std::move(config.replicas), std::move(own), config.bucket_bytes, pipeline_config_.tracer);
  pipeline_config_.exchange = reducer_.get();
}

LocalTrainer::~LocalTrainer() = default;

std::size_t LocalTrainer::stage_of_layer(std::size_t layer) const {
  std::size_t stage = 0;
  while (stage < pipeline_config_.cuts.size() && pipeline_config_.cuts[stage] <= layer) ++stage;
  return stage;
}

int LocalTrainer::worker_of_layer(std::size_t layer) const { return pipeline_config_.placement.worker_of[stage_of_layer(layer)]; }

void LocalTrainer::make_versions() {
  if (pipeline_config_.delay == 0) return;
  std::vector<Layers> of_stage(pipeline_config_.cuts.size() + 1);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (!layers_[l]) continue;
    of_stage[stage_of_layer(l)].push_back(layers_[l]);
    if (layers_[l]->late_gradients().empty()) continue;
    throw std::invalid_argument("--delay 1 does not go with layers that share a weight (tie_word_embeddings); leave --delay out");
  }
  for (std::size_t j = 0; j < of_stage.size(); ++j) {
    const bool here = !pipeline_config_.remote.has(pipeline_config_.placement.worker_of[j]);
    versions_.push_back(here ? std::make_unique<pipeline::ParameterVersions>(std::move(of_stage[j])) : nullptr);
    pipeline_config_.versions.push_back(versions_.back().get());
  }
}

void LocalTrainer::connect(const LinkMaker& link, transport::Timeout timeout) {
  disconnect();
  forget_step();
  pipeline_config_.remote.link = link;
  pipeline_config_.remote.timeout = timeout;
  pipeline_ = std::make_unique<Pipeline>(layers_, pipeline_config_, loss_);
  pipeline_->set_encoder_state(clone(encoders_));
}

void LocalTrainer::disconnect() { pipeline_ = nullptr; }

void LocalTrainer::forget_step() {
  pending_.reset();
  open_step_.reset();
  live_.clear();
  for (const auto& versions : versions_) {
    if (versions) versions->begin(steps_done_);
  }
  for (const auto& layer : layers_) {
    if (layer) layer->discard_batch();
  }
}

Layers LocalTrainer::layers_of(int worker) const {
  Layers own;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (layers_[l] && worker_of_layer(l) == worker) own.push_back(layers_[l]);
  }
  return own;
}

void LocalTrainer::make_optimizers() {
  optimizers_.clear();
  optimizers_.resize(static_cast<std::size_t>(pipeline_config_.placement.workers()));
  for (const int worker : workers()) optimizers_[static_cast<std::size_t>(worker)] = make_optimizer_(trained_parameters(worker));
}

// What an optimizer updates, and finds gradients with.
NamedParameters LocalTrainer::trained_parameters(int worker) const {
  NamedParameters parameters;
  for (std::size_t j = 0; j < versions_.size(); ++j) {
    if (pipeline_config_.placement.worker_of[j] != worker) continue;
    for (const auto& [name, version] : versions_[j]->newest()) parameters.emplace_back(name, version);
  }
  if (!versions_.empty()) return parameters;
  for (const auto& layer : layers_of(worker)) {
    for (const auto& item : layer->named_parameters()) {
      if (item.value().requires_grad()) parameters.emplace_back(layer->full_name(item.key()), item.value());
    }
  }
  return parameters;
}

void LocalTrainer::check_follows(const layer::Batch* batch, const pipeline::StepId& id) const {
  if (versions_.empty()) throw std::invalid_argument("steps overlap in a run with --delay 1 alone");
  if (!pipeline_) throw std::logic_error("the data channels are not open");
  if (pending_) throw std::invalid_argument(fmt::format("step {} waits for its commit", *pending_));
  const std::uint64_t next = open_step_ ? *open_step_ + 1 : steps_done_;
  if (batch != nullptr && id.step != next) throw std::invalid_argument(fmt::format("expected step {}, got step {}", next, id.step));
  if (batch == nullptr && !open_step_) throw std::invalid_argument("no step waits for its backwards");
}

StepResult LocalTrainer::overlapped_step(const layer::Batch* batch, const pipeline::StepId& id) {
  check_whole();
  check_follows(batch, id);
  if (!open_step_) forget_step();
  StepResult result = pipeline_->overlapped_step(batch, id);
  if (open_step_) {
    pending_ = open_step_;
    pending_encoders_ = clone(pipeline_->encoder_state_before(*open_step_ + 1));
  }
  open_step_ = batch != nullptr ? std::optional(id.step) : std::nullopt;
  note_memory(result);
  return result;
}

void LocalTrainer::early_backwards() {
  if (!open_step_ || !pipeline_) throw std::invalid_argument("no step had its forwards");
  pipeline_->early_backwards();
}

// Steps, remote stages' micro-batches and audits, whose gradients are all there is.
void LocalTrainer::check_at_once() const {
  if (!versions_.empty()) throw std::invalid_argument("the steps of a run with --delay 1 overlap; expected an overlapped step");
}

void LocalTrainer::check_settled() const {
  if (open_step_) throw std::invalid_argument(fmt::format("step {} is under way; run its backwards and commit it first", *open_step_));
}

void LocalTrainer::note_memory(StepResult& result) const {
  for (std::size_t w = 0; w < result.workers.size(); ++w) {
    if (!pipeline_config_.remote.has(static_cast<int>(w))) result.workers[w].peak_memory_bytes = peak_memory_bytes();
  }
}

StepResult LocalTrainer::forward_backward(const layer::Batch& batch, const pipeline::StepId& id, const Update* known) {
  check_whole();
  check_at_once();
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
  note_memory(result);
  return result;
}

StepResult LocalTrainer::train_step(const layer::Batch& batch, const pipeline::StepId& id, const Update* known) {
  if (batch.size() == 0 && reducer_) return sum_without_samples(id.step);
  if (known == nullptr) return pipeline_->train_step(batch, id);
  return pipeline_->train_step(batch, id, [&](int worker, const auto&) { apply_to(worker, *known); });
}

void LocalTrainer::check_whole() const {
  if (!loaded_.empty()) throw std::logic_error("weights are being loaded; a step needs all of them");
  if (restoring_) throw std::logic_error("a checkpoint was restored only in part; restore one, or begin anew");
  if (applied_) throw std::logic_error("a step that failed has changed some of the weights; the run can only go back to a checkpoint");
}

// A batch with fewer samples than there are replicas: this one takes part in the sums only.
StepResult LocalTrainer::sum_without_samples(std::uint64_t step) {
  StepResult result = no_result(pipeline_config_.cuts.size(), static_cast<std::size_t>(pipeline_config_.placement.workers()));
  WorkerTimes& times = result.workers[static_cast<std::size_t>(workers().at(0))];
  const Span span(times.all_reduce, pipeline_config_.tracer, workers().at(0), "all_reduce", step);
  times.all_reduce_bytes = reducer_->contribute_nothing(step);
  return result;
}

void LocalTrainer::leave_replicas() {
  if (reducer_) reducer_->leave();
}

int LocalTrainer::only_stage() const {
  int found = -1;
  const auto& workers = pipeline_config_.placement.worker_of;
  for (std::size_t j = 0; j < workers.size(); ++j) {
    if (pipeline_config_.remote.has(workers[j])) continue;
    if (found >= 0 || reducer_) throw std::invalid_argument("micro-batches one at a time are for a process with one stage and no replicas");
    found = static_cast<int>(j);
  }
  return found;
}

// What a step changed that was not committed: encoders that have seen its tensors, and statistics.
void LocalTrainer::begin_step() {
  check_whole();
  check_at_once();
  forget_step();
  pipeline_->begin_step();
  pipeline_->set_encoder_state(clone(encoders_));
}

void LocalTrainer::forward(std::uint32_t micro_batch, const std::vector<std::int64_t>& samples, std::uint64_t step, bool training) {
  check_whole();
  check_at_once();
  if (step != steps_done_) throw std::invalid_argument(fmt::format("a micro-batch of step {}, but {} steps are done", step, steps_done_));
  if (micro_batch >= kMaxNumber || live_.contains(micro_batch)) {
    throw std::invalid_argument(fmt::format("micro-batch {}: expected a number below {} that is not in use", micro_batch, kMaxNumber));
  }
  if (training && live_.size() >= static_cast<std::size_t>(pipeline_config_.chunks)) {
    throw std::invalid_argument(fmt::format(
        "{} micro-batches wait for their backward, and the run has room for no more; call backward, or use fewer", live_.size()));
  }
  layer::Batch batch;
  batch.samples = samples;
  pipeline_->run_action({schedule::Kind::kForward, static_cast<int>(micro_batch), only_stage()}, batch, {.step = step}, training);
  if (!training) return;
  live_[micro_batch] = samples;
  pending_.reset();
}

void LocalTrainer::backward(std::uint32_t micro_batch, std::uint64_t step) {
  check_whole();
  const auto found = live_.find(micro_batch);
  if (found == live_.end() || step != steps_done_) {
    throw std::invalid_argument(fmt::format("micro-batch {} of step {} has no forward that waits for its backward", micro_batch, step));
  }
  layer::Batch batch;
  batch.samples = found->second;
  pipeline_->run_action({schedule::Kind::kBackward, static_cast<int>(micro_batch), only_stage()}, batch, {.step = step}, true);
  live_.erase(found);
  if (!live_.empty()) return;
  pending_ = step;
  pending_encoders_ = clone(pipeline_->encoder_state());
}

AuditPartResult LocalTrainer::audit(const layer::Batch& batch, const pipeline::StepId& id, const AuditPart& part) {
  check_whole();
  check_at_once();
  audit_.check_follows(part);
  forget_step();
  pipeline::AuditRunResult done;
  try {
    done = pipeline_->audit(batch, id, audit_.begin(part));
    pipeline_->begin_step();
  } catch (...) {
    audit_.drop();
    leave_replicas();
    throw;
  }
  forget_step();
  return audit_.end(part, std::move(done));
}

StepResult LocalTrainer::evaluate(const layer::Batch& batch, const pipeline::StepId& id) {
  check_settled();
  return pipeline_->evaluate(batch, id);
}

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
    for (std::size_t i = 0; i < names.size(); ++i) {
      norms[names[i]] = values[static_cast<std::int64_t>(i)].item<double>();
      if (std::isfinite(norms[names[i]])) continue;
      throw std::runtime_error(fmt::format("the gradient of {} is not finite; lower --lr, or use --warmup or --loss-scaling on", names[i]));
    }
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
  if (pipeline_config_.loss_scaling) scaler_.update(update.skip);
  pending_.reset();
  ++steps_done_;
}

void LocalTrainer::apply_to(int worker, const Update& update) {
  const auto for_versions = [&](const auto& work) {
    for (std::size_t j = 0; j < versions_.size(); ++j) {
      if (pipeline_config_.placement.worker_of[j] == worker) work(*versions_[j]);
    }
  };
  for_versions([](auto& versions) { versions.advance(); });
  optimizers_[static_cast<std::size_t>(worker)]->step(update.lr, update.scale);
  for_versions([this](auto& versions) {
    versions.commit_batch();
    if (!open_step_) versions.settle();
  });
  if (versions_.empty()) layer::commit_batch(layers_of(worker));
}

void LocalTrainer::apply(const Update& update) {
  if (pipeline_) {
    pipeline_->on_workers([&](int worker, const auto&) { apply_to(worker, update); });
  } else {  // the channels were lost between the gradients and the commit
    for (const int worker : workers()) {
      const boundary::OwnStream stream(pipeline_config_.devices[static_cast<std::size_t>(worker)]);
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
  for (int w = 0; w < pipeline_config_.placement.workers(); ++w) {
    if (!pipeline_config_.remote.has(w)) here.push_back(w);
  }
  return here;
}

NamedTensors LocalTrainer::previous_weights() const {
  NamedTensors all;
  for (const auto& versions : versions_) {
    if (!versions) continue;
    for (const auto& [name, tensor] : versions->previous()) all[name] = tensor;
  }
  return all;
}

NamedTensors LocalTrainer::weights() const {
  check_settled();
  NamedTensors all;
  for (const auto& layer : layers_) {
    if (layer) all.merge(weights_of(*layer));
  }
  return all;
}

NamedTensors LocalTrainer::weights(std::size_t layer, bool trained_only) const {
  if (layer >= layers_.size() || !layers_[layer]) throw std::invalid_argument(fmt::format("layer {} is not run here", layer));
  check_settled();
  return weights_of(*layers_[layer], trained_only);
}

void LocalTrainer::load(std::size_t layer, const NamedTensors& from) {
  if (layer >= layers_.size() || !layers_[layer]) throw std::invalid_argument(fmt::format("layer {} is not run here", layer));
  disconnect();
  forget_step();
  const NamedTensors own = weights(layer);
  if (const auto loaded = model::load_into(from, own); !loaded) throw std::invalid_argument(loaded.error().message);
  loaded_.insert(layer);
}

void LocalTrainer::start_over() {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (layers_[l] && !loaded_.contains(l)) throw std::invalid_argument(fmt::format("the weights of layer {} are missing", l));
  }
  loaded_.clear();
  restoring_ = false;
  applied_ = false;
  disconnect();
  steps_done_ = 0;
  forget_step();
  make_optimizers();
  encoders_.clear();
  scaler_ = {};
  share_frozen();
}

// A new object for checkpoints to share: the values may be others than before.
void LocalTrainer::share_frozen() {
  NamedTensors all;
  for (const auto& layer : layers_) {
    if (!layer) continue;
    for (const auto& item : layer->named_parameters()) {
      if (!item.value().requires_grad()) all[layer->full_name(item.key())] = item.value().detach();
    }
  }
  frozen_ = all.empty() ? nullptr : std::make_shared<const NamedTensors>(std::move(all));
}

Checkpoint LocalTrainer::checkpoint() const {
  check_whole();
  Checkpoint c{steps_done_, weights(), {}, encoders_, fingerprint_, frozen_};
  if (frozen_) std::erase_if(c.model, [&](const auto& item) { return frozen_->contains(item.first); });
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    if (!optimizers_[w]) continue;
    for (auto& [name, tensor] : optimizers_[w]->state()) c.optimizer[fmt::format("{}/{}", w, name)] = tensor;
  }
  if (pipeline_config_.loss_scaling) c.optimizer.merge(scaler_.state());
  for (auto& [name, tensor] : previous_weights()) c.optimizer[kPreviousWeights + name] = tensor;
  return c;
}

void LocalTrainer::restore(const Checkpoint& c) {
  require_same_run_(c.config);
  restoring_ = true;
  loaded_.clear();
  applied_ = false;
  disconnect();
  forget_step();
  NamedTensors all = c.model;
  if (c.frozen) all.insert(c.frozen->begin(), c.frozen->end());
  if (const auto loaded = model::load_into(all, weights()); !loaded) throw std::runtime_error(loaded.error().message);
  share_frozen();
  restore_previous(c);
  for (std::size_t w = 0; w < optimizers_.size(); ++w) {
    const std::string prefix = fmt::format("{}/", w);
    NamedTensors own;
    for (const auto& [name, tensor] : c.optimizer) {
      if (name.starts_with(prefix)) own[name.substr(prefix.size())] = tensor;
    }
    if (optimizers_[w]) optimizers_[w]->set_state(own);
  }
  if (pipeline_config_.loss_scaling) scaler_.set_state(c.optimizer);
  encoders_ = clone(c.encoders);
  steps_done_ = c.step;
  forget_step();
  restoring_ = false;
}

void LocalTrainer::restore_previous(const Checkpoint& c) {
  if (versions_.empty()) return;
  NamedTensors previous;
  for (const auto& [name, tensor] : c.optimizer) {
    if (name.starts_with(kPreviousWeights)) previous[name.substr(kPreviousWeights.size())] = tensor;
  }
  if (const auto loaded = model::load_into(previous, previous_weights()); !loaded) {
    throw std::runtime_error("the weights before the last step: " + loaded.error().message);
  }
}

}  // namespace epipe::session
