#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/data/loader.h"
#include "epipe/model/model.h"
#include "epipe/model/weights.h"
#include "epipe/train/config.h"
#include "epipe/train/metrics.h"
#include "epipe/train/team.h"
#include "epipe/train/trainer.h"

namespace epipe::train {

// The pieces of a run, put together: data, model, and the processes that train it. Throws std::invalid_argument where they do not fit.
class Run {
 public:
  // Tracer and reach outlive the run. No tracer: no timeline; no reach: all workers are in this process.
  Run(const TrainConfig& config, Tracer* tracer, Reach* reach);

  std::uint64_t steps_per_epoch() const { return data::Loader::steps_per_epoch(data_.train->size(), config_.batch); }
  std::uint64_t all_steps() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.epochs); }
  double lr(std::uint64_t step) const { return lr_.at(static_cast<std::int64_t>(step)); }

  // Connects all processes, at the start and after a loss; returns the steps that are done.
  std::uint64_t connect() { return team_->connect(); }
  // One batch: gradients, then the optimizer step of all workers together, with the gradient clipped over all stages.
  pipeline::StepResult forward_backward(const data::LoadedBatch& loaded, bool measure_error);
  void update(std::uint64_t step) { team_->commit(step, lr(step)); }
  // Every sample of the validation set once.
  EpochResult validate(std::uint64_t epoch, std::uint64_t step);

  // Parameters and buffers by full name.
  NamedTensors weights() { return team_->weights(); }
  // The weights that a run which begins begins from, see model/weights.h; before connect().
  void begin_from(const std::string& path, model::NewParts new_parts) {
    weights_file_ = path;
    new_parts_ = new_parts;
  }
  std::vector<Tracer::Event> timelines(const Tracer& own) { return team_->timelines(own); }
  void save() { team_->save(); }
  void end() { team_->end(); }
  void leave() { team_->leave(); }
  bool draining() const { return team_->draining(); }

  const Plan& plan() const { return shared_plan_; }
  const data::Dataset& training_data() const { return *data_.train; }
  // What its user should know of the model and its weights, once.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const std::vector<CutNames>& codec_names() const { return codec_names_; }
  const std::vector<std::string>& cut_names() const { return cut_names_; }  // of the layers that begin a stage
  int workers() const { return schedule::Placement{plan_.place}.workers(); }

 private:
  int chunks_for(const layer::Batch& batch) const;
  model::Model initial_model();
  void load_weights(const model::Model& model);

  TrainConfig config_;
  data::Splits data_;
  model::Model model_;  // as the run starts from it; the layers that are here are trained
  Plan shared_plan_;    // what all processes are told
  Plan plan_;           // the same, with learned codecs as layers
  std::unique_ptr<Share> share_;
  std::unique_ptr<Team> team_;
  LrSchedule lr_;
  std::vector<CutNames> codec_names_;
  std::vector<std::string> cut_names_;
  std::vector<std::string> notes_;
  std::string weights_file_;
  model::NewParts new_parts_ = model::NewParts::kNone;
  bool started_ = false;
};

}  // namespace epipe::train
