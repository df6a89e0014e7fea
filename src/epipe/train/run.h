#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/data/loader.h"
#include "epipe/model/model.h"
#include "epipe/model/weights.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/checkpoint.h"
#include "epipe/train/config.h"
#include "epipe/train/metrics.h"
#include "epipe/train/trainer.h"

namespace epipe::train {

// The pieces of a run, put together: data, model, pipeline, optimizers. Throws std::invalid_argument where they do not fit.
class Run {
 public:
  // The tracer outlives the run; null: no timeline.
  Run(const TrainConfig& config, Tracer* tracer);

  std::uint64_t steps_per_epoch() const { return data::Loader::steps_per_epoch(data_.train->size(), config_.batch); }
  std::uint64_t all_steps() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.epochs); }
  double lr(std::uint64_t step) const { return lr_.at(static_cast<std::int64_t>(step)); }

  // One batch: gradients, then the optimizer step of all workers together, with the gradient clipped over all stages.
  pipeline::StepResult forward_backward(const data::LoadedBatch& loaded, bool measure_error);
  void update(std::uint64_t step);
  // Every sample of the validation set once.
  EpochResult validate(std::uint64_t epoch, std::uint64_t step);

  // Parameters and buffers by full name; they are the model's own tensors.
  NamedTensors weights() const;
  void load_weights(const NamedTensors& from);
  // A weights file (see model/weights.h); returns what its user should know.
  std::vector<std::string> load_file(const std::string& path, model::NewParts new_parts);
  Checkpoint checkpoint(std::uint64_t steps_done) const;
  void restore(const Checkpoint& checkpoint);

  const data::Dataset& training_data() const { return *data_.train; }
  const std::vector<std::string>& notes() const { return model_.notes; }
  const std::vector<CutNames>& codec_names() const { return codec_names_; }
  const std::vector<std::string>& cut_names() const { return cut_names_; }  // of the layers that begin a stage
  int workers() const { return pipeline_->workers(); }

 private:
  int chunks_for(const layer::Batch& batch) const;
  pipeline::PipelineConfig pipeline_config(Tracer* tracer) const;
  void make_optimizers();
  double clip_scale() const;

  TrainConfig config_;
  data::Splits data_;
  model::Model model_;
  std::unique_ptr<pipeline::Pipeline> pipeline_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;  // by worker
  LrSchedule lr_;
  std::string fingerprint_;  // what a resumed run must have in common with the one it continues
  std::vector<CutNames> codec_names_;
  std::vector<std::string> cut_names_;
};

}  // namespace epipe::train
