#pragma once

#include <torch/types.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "epipe/pipeline/chunks.h"
#include "epipe/pipeline/cut.h"
#include "epipe/pipeline/gradient_hooks.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/schedule/schedule.h"

namespace epipe::pipeline {

// One call of train_step or evaluate, shared by the workers. What it gathers is written by the worker of the last stage only, by
// micro-batch, and is there when that worker's stream is done.
struct Run {
  const Batch& batch;
  StepId id;
  bool training;
  const Pipeline::WorkerJob& then;
  std::vector<Chunk> chunks;
  std::int64_t terms;  // that the loss is the mean of
  const schedule::Schedule& schedule;
  const AuditRun* audit = nullptr;             // whose micro-batches they are; null: a step's, or an evaluation's
  std::optional<int> only{};                   // micro-batch: the run is one action of a step, and all of the batch is this
  int live_offset = 0;                         // of its micro-batches' numbers in a stage, which may hold those of another step as well
  std::vector<torch::Tensor> losses{};         // summed over the samples, on the host; undefined where the last stage is elsewhere
  std::vector<torch::Tensor> correct{};        // on the host
  std::vector<torch::Tensor> scaled_losses{};  // with their graph, until the backward of the last stage
  std::vector<Tensors> loss_gradients{};       // instead, where that stage has no graph of autograd: of its outputs
  std::vector<torch::Tensor> predictions{};    // on the device
  std::atomic<bool> non_finite = false;
};

// A step that had its forwards and waits for its backwards, where steps overlap; what its run refers to.
struct OpenStep {
  OpenStep(const Batch& its_batch, const StepId& id, std::vector<Chunk> chunks, std::int64_t terms)
      : batch(its_batch), run{batch, id, true, nothing, std::move(chunks), terms, no_order} {
    run.live_offset = id.step % 2 == 0 ? 0 : schedule::kMaxChunks;
  }
  OpenStep(const OpenStep&) = delete;
  OpenStep& operator=(const OpenStep&) = delete;

  Batch batch;
  Pipeline::WorkerJob nothing{};
  schedule::Schedule no_order{};
  Run run;
};

// What a pipeline is made of.
struct Parts {
  const PipelineConfig& config;
  const Loss& loss;
  std::deque<Stage>& stages;
  const std::vector<std::unique_ptr<Cut>>& cuts;
  const std::vector<std::unique_ptr<GradientHooks>>& hooks;  // by stage; empty: gradients are not exchanged
};

// One worker's way through a run: the actions that the schedule gives it, one after the other, in its thread.
class WorkerRun {
 public:
  WorkerRun(const Parts& parts, int worker, Run& run, WorkerTimes& times) : parts_(parts), worker_(worker), run_(run), times_(times) {}

  // Throws what layers, loss and cuts throw.
  void execute();
  // One action, where somebody else decides their order.
  void run(const schedule::Action& action);

 private:
  std::vector<schedule::Action> actions_of(int j) const;
  void forward(const schedule::Action& action);
  void forward_by_sample(const schedule::Action& action);
  void backward(const schedule::Action& action);
  void backward_weights(const schedule::Action& action);
  Tensors stage_backward(const schedule::Action& action, const Tensors& gradients);
  GradientHooks* hooks_for(const schedule::Action& action) const;
  void take_gradients(const schedule::Action& action) const;
  const Rates& rates(int i) const;
  void send(int j, wire::Direction direction, int i, Tensors tensors);
  Tensors recv(int j, wire::Direction direction, int i);
  void finish_forward(int i, const Tensors& outputs);
  void finish_gradients();
  void exchange_gradients();
  void look_for_non_finite();
  void do_then();
  ForwardContext context(const Batch& micro_batch) const;
  Batch micro_batch(int i) const { return slice(run_.batch, run_.chunks[run_.only ? 0 : static_cast<std::size_t>(i)]); }

  int live_number(int i) const { return i + run_.live_offset; }
  bool has(std::size_t stage) const { return parts_.config.placement.worker_of[stage] == worker_; }
  bool is_last(int stage) const { return static_cast<std::size_t>(stage) + 1 == parts_.stages.size(); }
  Stage& stage(int j) const { return parts_.stages[static_cast<std::size_t>(j)]; }
  Cut& cut(int j) const { return *parts_.cuts[static_cast<std::size_t>(j)]; }

  Parts parts_;
  int worker_;
  Run& run_;
  WorkerTimes& times_;
};

}  // namespace epipe::pipeline
