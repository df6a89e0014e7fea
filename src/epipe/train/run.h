#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epipe/data/loader.h"
#include "epipe/model/model.h"
#include "epipe/model/weights.h"
#include "epipe/train/config.h"
#include "epipe/train/coordinator.h"
#include "epipe/train/metrics.h"
#include "epipe/train/registry.h"
#include "epipe/train/trainer.h"

namespace epipe::train {

// "cuda" is the device of this rank: each rank of a machine has another, as far as there are enough.
torch::Device device_of(const std::string& name, int local_rank);

// The pieces of a run, put together: data, model, and the processes that train it. Throws std::invalid_argument where they do not fit.
class Run {
 public:
  // Registry, tracer and connector outlive the run. No tracer: no timeline; no connector: all workers are in this process. `replicas`: this
  // worker in all replicas; null: there is one. A tap sees what crosses the cuts.
  Run(const Registry& registry, const TrainConfig& config, Tracer* tracer, PeerConnector* connector,
      std::unique_ptr<transport::Group> replicas = nullptr, pipeline::TensorObserver tap = {});

  std::uint64_t steps_per_epoch() const { return data::Loader::steps_per_epoch(data_.train->size(), config_.batch); }
  std::uint64_t all_steps() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.epochs); }
  // The step after the last.
  std::uint64_t end_step() const;
  double lr(std::uint64_t step) const { return lr_.at(static_cast<std::int64_t>(step)); }

  // Connects all processes, at the start and after a loss; returns the steps that are done.
  std::uint64_t connect() { return coordinator_->connect(); }
  // This replica's parts of the batches from `first_step` on.
  std::unique_ptr<data::Loader> training_batches(std::uint64_t first_step) const;
  std::unique_ptr<data::Loader> validation_batches() const;
  std::uint64_t validation_steps() const { return data::Loader::steps_per_epoch(data_.validation->size(), config_.batch); }
  // One batch: gradients, then the optimizer step of all workers together, with the gradient clipped over all stages.
  pipeline::StepResult forward_backward(const data::LoadedBatch& loaded, bool measure_error);
  void update(std::uint64_t step) { coordinator_->commit(step, lr(step)); }
  // What the loss of the next step is multiplied by; nothing without loss scaling.
  std::optional<double> loss_scale() const { return plan_.loss_scaling ? std::optional(local_->loss_scale()) : std::nullopt; }
  pipeline::StepResult evaluate(const data::LoadedBatch& loaded, std::uint64_t epoch, std::uint64_t step);
  // Every sample of the validation set once.
  EpochResult validate(std::uint64_t epoch, std::uint64_t step);

  // Parameters and buffers by full name.
  NamedTensors weights() { return coordinator_->weights(); }
  // The weights that a run which begins begins from, see model/weights.h; before connect().
  void begin_from(const std::string& path, model::NewParts new_parts) {
    weights_file_ = path;
    new_parts_ = new_parts;
  }
  // Where another process is the client: the run begins with these weights, of all workers. Throws std::invalid_argument.
  void begin_with(const NamedTensors& weights);
  Coordinator& coordinator() { return *coordinator_; }
  LocalTrainer& local() { return *local_; }
  std::vector<Tracer::Event> timelines(const Tracer& own) { return coordinator_->timelines(own); }
  void save() { coordinator_->save(); }
  void end() { coordinator_->end(); }
  void leave() { coordinator_->leave(); }
  bool draining() const { return coordinator_->draining(); }

  const Plan& plan() const { return shared_plan_; }
  // What its user should know of the model and its weights, once.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const std::vector<CutNames>& codec_names() const { return codec_names_; }
  const std::vector<std::string>& cut_names() const { return cut_names_; }  // of the layers that begin a stage
  int workers() const { return schedule::Placement{plan_.place}.workers(); }

 private:
  void check_batch() const;
  data::LoaderConfig loader_config() const;
  int chunks_for(const layer::Batch& batch) const;
  model::Architecture architecture() const;
  model::Model first_model(Plan& plan) const;
  model::Model initial_model();
  void load_weights(const model::Model& model);

  const Registry& registry_;
  TrainConfig config_;
  int replica_ = 0;
  data::Splits data_;
  model::Model model_;  // as the run starts from it; the layers that are here are trained
  Plan shared_plan_;    // what all processes are told
  Plan plan_;           // the same, with learned codecs as layers
  std::unique_ptr<LocalTrainer> local_;
  std::unique_ptr<Coordinator> coordinator_;
  LrSchedule lr_;
  std::vector<CutNames> codec_names_;
  std::vector<std::string> cut_names_;
  std::vector<std::string> notes_;
  std::string weights_file_;
  model::NewParts new_parts_ = model::NewParts::kNone;
  bool started_ = false;
};

}  // namespace epipe::train
