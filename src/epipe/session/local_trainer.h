#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "epipe/layer/layer.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/session/checkpoint.h"
#include "epipe/session/local_audit.h"
#include "epipe/session/loss_scaler.h"
#include "epipe/session/optimizer.h"
#include "epipe/session/reducer.h"
#include "epipe/session/update.h"

namespace epipe::session {

using Layers = std::vector<std::shared_ptr<layer::Layer>>;

struct LocalTrainerConfig {
  Layers layers;                      // of the whole model, shared with it; null where other processes have them
  pipeline::PipelineConfig pipeline;  // remote.workers: those of other processes
  pipeline::Loss loss;
  MakeOptimizer make_optimizer;
  std::string fingerprint;  // of the run, for its checkpoints
  // Throws std::invalid_argument where a checkpoint with this fingerprint belongs to another run.
  std::function<void(const std::string& fingerprint)> require_same_run;
  std::unique_ptr<transport::Group> replicas{};  // the only worker that is here, in all replicas; null: there is one
  std::size_t bucket_bytes = std::size_t{4} << 20;
  int codec_threads = 1;  // see pipeline/pipeline.h
};

// Parameters and buffers by full name; they are the layer's own tensors.
NamedTensors weights_of(const layer::Layer& layer, bool trained_only = false);

// The part of a run that one process computes: the stages of its workers, their optimizers and their encoders. A step changes nothing
// until it is committed, so a step that was lost on the way is simply done again. Throws what the pipeline throws.
class LocalTrainer {
 public:
  explicit LocalTrainer(LocalTrainerConfig config);
  ~LocalTrainer();
  LocalTrainer(const LocalTrainer&) = delete;
  LocalTrainer& operator=(const LocalTrainer&) = delete;

  // Opens the data channels to the other processes, for the first time or again; what was not committed is gone. Where all workers are
  // here there are none, but this call is needed all the same.
  using LinkMaker = std::function<std::unique_ptr<transport::Link>(int cut, int peer)>;
  void connect(const LinkMaker& link, transport::Timeout timeout);
  void disconnect();
  bool connected() const { return pipeline_ != nullptr; }
  pipeline::Pipeline::GraphUse graph_use() const { return pipeline_ ? pipeline_->graph_use() : pipeline::Pipeline::GraphUse{}; }

  // Gradients of one batch, of all replicas together, not yet applied. Only with replicas may the batch be empty. Where nobody else takes
  // part and the update is `known` already, each worker applies it as soon as its gradients are there; commit() makes it count.
  pipeline::StepResult forward_backward(const layer::Batch& batch, const pipeline::StepId& id, const Update* known = nullptr);
  // With a delay, instead: forwards of `batch`, step id.step, which may be null, beside backwards of the step before, if there was one that
  // was not committed: its gradients wait for the commit then. A step follows the one whose forwards were last, or the last commit; there
  // are no validation, no weights and no checkpoint before a call without a batch. Throws std::invalid_argument for what does not fit.
  pipeline::StepResult overlapped_step(const layer::Batch* batch, const pipeline::StepId& id);
  // Between that and the commit, see schedule/overlapped.h. Throws std::invalid_argument where no step had its forwards.
  void early_backwards();
  bool has_open_step() const { return open_step_.has_value(); }  // one had its forwards
  // The same one micro-batch at a time, where the coordinator decides as it goes; for a process that runs one stage in the middle. Numbers
  // are unique within a step. When all that had a forward had their backward, the gradients wait for the commit. Throws
  // std::invalid_argument for what does not fit.
  void begin_step();
  void forward(std::uint32_t micro_batch, const std::vector<std::int64_t>& samples, std::uint64_t step, bool training);
  void backward(std::uint32_t micro_batch, std::uint64_t step);
  bool has_replicas() const { return reducer_ != nullptr; }
  // Some micro-batches of an audit, of this replica alone. Weights, optimizers, encoders and statistics stay as they are; gradients that
  // wait for their commit are gone. Throws std::invalid_argument for a part that does not follow the one before.
  AuditPartResult audit(const layer::Batch& batch, const pipeline::StepId& id, const AuditPart& part);
  pipeline::StepResult evaluate(const layer::Batch& batch, const pipeline::StepId& id);
  // By full parameter name. Throws std::runtime_error that names a gradient with NaN or Inf.
  std::map<std::string, double> squared_gradient_norms() const;
  // After a failure: the other replicas must not wait for gradients that do not come. Training is over.
  void leave_replicas();
  // Applies the gradients of `step`, or skips them: then weights, optimizer, BatchNorm statistics and encoders are as before the step.
  // Does nothing when it was done before; std::logic_error when the gradients are not there.
  void commit(std::uint64_t step, const Update& update);
  double loss_scale() const { return pipeline_config_.loss_scaling ? scaler_.scale() : 1; }  // of the next step

  const pipeline::PipelineConfig& pipeline_config() const { return pipeline_config_; }
  std::size_t layers() const { return layers_.size(); }  // of the whole model
  // Whether its state is that of one run: not while weights are being loaded, nor after a restore or a step that failed halfway.
  bool whole() const { return loaded_.empty() && !restoring_ && !applied_; }
  int worker_of_layer(std::size_t layer) const;
  bool runs(std::size_t layer) const { return layers_.at(layer) != nullptr; }
  std::vector<int> workers() const;                                       // that are here
  std::uint64_t steps_done() const { return steps_done_; }                // committed
  std::optional<std::uint64_t> pending_step() const { return pending_; }  // its gradients wait for the commit

  // Own parameters and buffers by full name, of all layers or of one; they are the model's tensors. `trained_only`: parameters that are
  // trained, and no buffers. Throws std::invalid_argument for a layer that is not here.
  NamedTensors weights() const;
  NamedTensors weights(std::size_t layer, bool trained_only = false) const;
  // A new run: load() every layer that is here, in any order, then start_over(). Both throw std::invalid_argument for weights that do not
  // fit, and start_over() where a layer is missing.
  void load(std::size_t layer, const NamedTensors& weights);
  void start_over();
  Checkpoint checkpoint() const;
  // Throws std::invalid_argument when the checkpoint belongs to another run.
  void restore(const Checkpoint& checkpoint);

 private:
  void make_versions();
  void make_optimizers();
  void share_frozen();
  NamedParameters trained_parameters(int worker) const;
  void check_follows(const layer::Batch* batch, const pipeline::StepId& id) const;
  void check_at_once() const;
  void check_settled() const;
  NamedTensors previous_weights() const;
  void restore_previous(const Checkpoint& checkpoint);
  void note_memory(pipeline::StepResult& result) const;
  std::size_t stage_of_layer(std::size_t layer) const;
  Layers layers_of(int worker) const;
  void apply(const Update& update);
  void apply_to(int worker, const Update& update);
  void skip();
  void check_whole() const;
  int only_stage() const;
  void forget_step();
  pipeline::StepResult train_step(const layer::Batch& batch, const pipeline::StepId& id, const Update* known);
  pipeline::StepResult sum_without_samples(std::uint64_t step);

  Layers layers_;
  pipeline::PipelineConfig pipeline_config_;
  pipeline::Loss loss_;
  MakeOptimizer make_optimizer_;
  std::string fingerprint_;
  std::function<void(const std::string&)> require_same_run_;
  std::unique_ptr<Reducer> reducer_;                                    // null without replicas
  std::unique_ptr<pipeline::Pipeline> pipeline_;                        // null while disconnected
  std::vector<std::unique_ptr<pipeline::ParameterVersions>> versions_;  // by stage, null for those of other processes; empty: no delay
  std::vector<std::unique_ptr<Optimizer>> optimizers_;                  // by worker, null for those of other processes
  std::shared_ptr<const NamedTensors> frozen_;                          // see Checkpoint; null: every parameter is trained
  codec::State encoders_;                                               // as of the last commit
  LossScaler scaler_;
  std::uint64_t steps_done_ = 0;
  std::set<std::size_t> loaded_;  // layers, since the last start_over()
  bool restoring_ = false;        // or a restore failed halfway
  std::optional<std::uint64_t> pending_;
  std::optional<std::uint64_t> open_step_;  // with a delay: it had its forwards
  LocalAudit audit_;
  codec::State pending_encoders_;                            // as of the gradients
  std::map<std::uint32_t, std::vector<std::int64_t>> live_;  // samples of micro-batches between forward() and backward()
  bool applied_ = false;                                     // to the weights, or to some of them, by a step that is not committed
};

}  // namespace epipe::session
