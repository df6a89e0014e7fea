#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epipe/model/model.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/checkpoint.h"
#include "epipe/train/loss_scaler.h"
#include "epipe/train/plan.h"
#include "epipe/train/reducer.h"

namespace epipe::train {

// The workers of one process and what they run on.
struct LocalWorkers {
  std::vector<int> workers;                      // empty: all of the plan
  std::vector<torch::Device> devices;            // by worker of the plan; empty: the CPU
  Tracer* tracer = nullptr;                      // outlives the share; null: no timeline
  std::int64_t input_edge = 0;                   // see pipeline/pipeline.h
  pipeline::TensorObserver tap{};                // sees what crosses the cuts; null: nobody looks
  std::unique_ptr<transport::Group> replicas{};  // the only worker that is here, in all replicas; null: there is one
  std::size_t bucket_bytes = std::size_t{4} << 20;
  pipeline::Loss loss{};  // null: by the plan's data, see loss.h
};

// Parameters and buffers by full name, of the layers that these workers have; they are the model's tensors. Layers that are null are
// skipped.
NamedTensors weights_of(const model::Model& model, const Plan& plan, const std::vector<int>& workers);

// What the client decided about the gradients of a step.
struct Update {
  double lr = 0;
  double scale = 1;   // of the gradients
  bool skip = false;  // they hold NaN or Inf somewhere: nothing changes but the loss scale
};

// The part of a run that one process computes: the stages of its workers, their optimizers and their encoders. A step changes nothing
// until it is committed, so a step that was lost on the way is simply done again. Throws what the pipeline throws.
class LocalTrainer {
 public:
  // The layers are the model's; those of other processes are not touched.
  LocalTrainer(const Plan& plan, const model::Model& model, LocalWorkers here);
  ~LocalTrainer();
  LocalTrainer(const LocalTrainer&) = delete;
  LocalTrainer& operator=(const LocalTrainer&) = delete;

  // Opens the data channels to the other processes, for the first time or again; what was not committed is gone. A share that has all
  // workers needs none, but this call.
  using LinkMaker = std::function<std::unique_ptr<transport::Link>(int cut, int peer)>;
  void connect(const LinkMaker& link, transport::Timeout timeout);
  void disconnect();
  bool connected() const { return pipeline_ != nullptr; }

  // Gradients of one batch, of all replicas together, not yet applied. Only with replicas may the batch be empty. Where nobody else takes
  // part and the update is `known` already, each worker applies it as soon as its gradients are there; commit() makes it count.
  pipeline::StepResult forward_backward(const layer::Batch& batch, const pipeline::StepId& id, const Update* known = nullptr);
  bool has_replicas() const { return reducer_ != nullptr; }
  pipeline::StepResult evaluate(const layer::Batch& batch, const pipeline::StepId& id);
  // By full parameter name.
  std::map<std::string, double> squared_gradient_norms() const;
  // After a failure: the other replicas must not wait for gradients that do not come. Training is over.
  void leave_replicas();
  // Applies the gradients of `step`, or skips them: then weights, optimizer, BatchNorm statistics and encoders are as before the step.
  // Does nothing when it was done before; std::logic_error when the gradients are not there.
  void commit(std::uint64_t step, const Update& update);
  double loss_scale() const { return plan_.loss_scaling ? scaler_.scale() : 1; }  // of the next step

  std::vector<int> workers() const;                                       // that are here
  std::uint64_t steps_done() const { return steps_done_; }                // committed
  std::optional<std::uint64_t> pending_step() const { return pending_; }  // its gradients wait for the commit

  // Own parameters and buffers by full name; they are the model's tensors.
  NamedTensors weights() const;
  // A new run from these weights, which must be exactly weights().
  void start_over(const NamedTensors& weights);
  Checkpoint checkpoint() const;
  // Throws std::invalid_argument when the checkpoint belongs to another plan.
  void restore(const Checkpoint& checkpoint);

 private:
  void make_optimizers();
  std::vector<std::shared_ptr<layer::Layer>> layers_of(int worker) const;
  void apply(const Update& update);
  void apply_to(int worker, const Update& update);
  void skip();
  void check_whole() const;
  void forget_step();
  pipeline::StepResult train_step(const layer::Batch& batch, const pipeline::StepId& id, const Update* known);
  pipeline::StepResult sit_out(std::uint64_t step);

  Plan plan_;
  model::Model model_;
  LocalWorkers own_;
  pipeline::PipelineConfig config_;
  std::unique_ptr<Reducer> reducer_;                    // null without replicas
  std::unique_ptr<pipeline::Pipeline> pipeline_;        // null while disconnected
  std::vector<std::unique_ptr<Optimizer>> optimizers_;  // by worker, null elsewhere
  codec::State encoders_;                               // as of the last commit
  LossScaler scaler_;
  std::uint64_t steps_done_ = 0;
  std::optional<std::uint64_t> pending_;
  codec::State pending_encoders_;  // as of the gradients
  bool applied_ = false;           // to the weights, or to some of them, by a step that is not committed
};

}  // namespace epipe::train
