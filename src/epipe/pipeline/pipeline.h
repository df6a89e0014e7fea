#pragma once

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "epipe/base/metric.h"
#include "epipe/base/trace.h"
#include "epipe/boundary/boundary.h"
#include "epipe/boundary/frame_store.h"
#include "epipe/boundary/traffic.h"
#include "epipe/codec/codec.h"
#include "epipe/layer/batch.h"
#include "epipe/pipeline/gradient_exchange.h"
#include "epipe/pipeline/parameter_versions.h"
#include "epipe/pipeline/stage.h"
#include "epipe/schedule/generate.h"
#include "epipe/transport/link.h"
#include "epipe/wire/frame.h"

namespace epipe::pipeline {

using layer::Batch;

// The codecs of one cut.
struct CutCodecs {
  std::string forward = "none";
  std::string backward = "none";

  const std::string& of(wire::Direction direction) const { return direction == wire::Direction::kForward ? forward : backward; }
};

// The workers that other processes run. A pipeline computes the stages of its own workers and exchanges tensors with the others.
struct RemoteWorkers {
  std::vector<int> workers;
  // This process's end of the data channel at `cut` to worker `peer`.
  std::function<std::unique_ptr<transport::Link>(int cut, int peer)> link;
  transport::Timeout timeout = transport::kNoTimeout;  // of a worker that waits for them

  bool has(int worker) const { return std::find(workers.begin(), workers.end(), worker) != workers.end(); }
};

// Activations of the first cut that its later side keeps by sample: from the second epoch on the earlier side sends their names alone.
struct ReuseConfig {
  bool on = false;
  std::string key{};                               // of the earlier side, for sample_tag()
  std::shared_ptr<boundary::FrameStore> frames{};  // of the later side; shared by the pipelines of one run, one after the other
};

// Sees what stage `cut` or `cut` + 1 hands over in training, before any codec. Called by the threads of the workers, several at once.
using TensorObserver = std::function<void(int cut, wire::Direction direction, int micro_batch, const Tensors& tensors)>;

struct PipelineConfig {
  std::vector<std::size_t> cuts;       // layer index at which each stage but the first begins, ascending; none: one stage
  schedule::Placement placement;       // the worker of each stage; empty: stage j on worker j
  std::string schedule = "gpipe";      // see schedule/generate.h
  int chunks = 1;                      // micro-batches per batch
  int in_flight = 0;                   // most of them that a stage may hold; 0: as the schedule limits them
  schedule::Costs costs{};             // what the schedule is ordered for; no stages: equal ones
  int threads = 1;                     // of each worker inside an operator
  std::vector<torch::Device> devices;  // of each worker; empty: the CPU
  // By cut; empty: none everywhere. Cuts within one of several workers are handed over as they are; with a single worker every cut is
  // coded, which simulates the compression of a pipeline.
  std::vector<CutCodecs> codecs;
  int codec_threads = 1;   // of each sender and each receiver at a cut; they change no result
  bool recompute = false;  // keep only the inputs of a stage between forward and backward
  bool graphs = false;     // run the stages on CUDA devices as CUDA graphs where they can be; to the same bits (stage_graphs.h)
  layer::Precision precision = layer::Precision::kFp32;  // of products and convolutions; tensors cross a cut in the type they have
  bool loss_scaling = false;                             // a step may find NaN or Inf: it says so in its result, and does not fail
  RemoteWorkers remote{};                                // the workers of other processes; default: all are here
  std::int64_t input_edge = 0;                           // the first stage resizes the images it is given to this; 0: it does not
  GradientExchange* exchange = nullptr;                  // of the only worker that is here, with its replicas; outlives the pipeline
  Tracer* tracer = nullptr;                              // outlives the pipeline; null: no timeline
  TensorObserver observer{};                             // null: nobody looks
  int first_trained = 0;  // stages before it have nothing to train: they run no backward, and the cuts between them carry no gradients
  int delay = 0;          // steps that gradients are applied late, 0 or 1: then steps overlap, in overlapped_step() instead of train_step()
  std::vector<ParameterVersions*> versions{};  // by stage, null for those of other processes, with a delay; they outlive the pipeline
  ReuseConfig reuse{};                         // needs first_trained > 0, and the two sides of the first cut in two processes
  std::uint64_t seed = 0;
};

// Bits per value at one cut, of codecs whose rate can be set (codec::target_rate); 0: what the spec says.
struct CutRates {
  double forward = 0;
  double backward = 0;

  double& of(wire::Direction direction) { return direction == wire::Direction::kForward ? forward : backward; }
  double of(wire::Direction direction) const { return direction == wire::Direction::kForward ? forward : backward; }
};
using Rates = std::vector<CutRates>;  // by cut; empty: what the specs say

// Where a batch stands in the run.
struct StepId {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  int chunks = 0;              // micro-batches, where not those of the configuration: the last batch of an epoch may be small
  bool measure_error = false;  // compare what is encoded with what will be decoded, for the metrics; costs a decode per tensor
  std::int64_t terms = 0;      // that the loss is the mean of, where the batch is a part of a larger one; 0: layer::loss_terms() of it
  double loss_scale = 1;       // a power of two: gradients are those of the loss times this
  Rates rates{};               // what `auto` without a number needs
};

// What a loss makes of the last layer's outputs, in the type they have, for one micro-batch.
struct LossResult {
  torch::Tensor sum;            // over the terms, in float32; scalar, with its graph
  torch::Tensor correct{};      // samples predicted right, or whatever the metric sums; scalar; undefined: 0
  torch::Tensor predictions{};  // kept by evaluate() when defined
};
using Loss = std::function<LossResult(const Tensors& outputs, const torch::Tensor& targets)>;

// What a worker did in a step; base/worker_metrics.def says what each is.
struct WorkerTimes {
#define METRIC EPIPE_METRIC_MEMBER
#include "epipe/base/worker_metrics.def"
#undef METRIC

  WorkerTimes& operator+=(const WorkerTimes& other) { return combine(*this, other); }

  template <typename Visit, typename... Structs>
  static void each(Visit&& visit, Structs&... structs) {
#define METRIC EPIPE_METRIC_VISIT
#include "epipe/base/worker_metrics.def"
#undef METRIC
  }
};

// What is known in this process: of workers elsewhere, zeros.
struct StepResult {
  double loss = 0;  // the mean over the terms of this batch, for any chunking; where the last stage is
  double correct = 0;
  std::int64_t samples = 0;
  std::int64_t terms = 0;                   // predictions that loss and correct are of: samples, or tokens
  bool non_finite = false;                  // with loss scaling: a gradient here holds NaN or Inf
  std::vector<boundary::Traffic> forward;   // by cut
  std::vector<boundary::Traffic> backward;  // by cut
  std::vector<WorkerTimes> workers;
  std::vector<int> peak_live;   // by stage: micro-batches held at once
  torch::Tensor predictions{};  // evaluate() only; where the last stage is
  torch::Tensor targets{};      // evaluate() only, of the same samples; where they are known
};

inline constexpr int kAuditMicroBatches = 10;  // that an audit may run together, where a batch has fewer

// What the loss of one micro-batch was made of. On the last stage's device.
struct AuditedLoss {
  Tensors outputs;    // of the last layer, detached
  torch::Tensor sum;  // of the loss over the terms, scalar
  Tensors gradients;  // of `sum * factor` by the outputs; undefined where it does not depend on one
  double factor = 1;
  std::int64_t terms = 1;  // of a micro-batch, on average
};

// Micro-batches that are run for their gradients and losses alone, each at rates of its own: nothing is exchanged with replicas, and
// encoders are frozen.
struct AuditRun {
  std::vector<Rates> rates;                    // by micro-batch
  std::vector<std::vector<double>> try_rates;  // by 2 * cut + direction: what micro-batch 0 is measured at; empty: nothing
  // The gradients of one micro-batch are in the parameters of these layers, those of one stage; the callee takes them out. Called by the
  // thread of the stage's worker, several workers at once, in ascending order of micro-batches. Where layers share a weight, what one of
  // them adds to it when the batch ends is missing.
  std::function<void(int micro_batch, int stage, const std::vector<std::shared_ptr<Layer>>& layers)> take;
  // By the thread of the last stage's worker, in the same order.
  std::function<void(int micro_batch, const AuditedLoss& loss)> take_loss;
};

struct AuditRunResult {
  StepResult step;
  std::vector<std::vector<boundary::RatePoint>> curves;  // by 2 * cut + direction, where the sender is here
};

// Trains a list of layers cut into stages, one thread per worker, in schedule order. With the codec none it computes what one stage
// would, bit for bit. Not for several threads at once; a pipeline that threw is over.
class Pipeline {
 public:
  Pipeline(const std::vector<std::shared_ptr<Layer>>& layers, PipelineConfig config, Loss loss);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // What a worker does with its stages, in its thread.
  using WorkerJob = std::function<void(int worker, const std::vector<Stage*>&)>;

  // Forward and backward of one batch. The gradients, of the mean loss times id.loss_scale, are left in the parameters; nothing else
  // changes. Every worker that is here does `then` when its own gradients are there, without waiting for the others or its device.
  StepResult train_step(const Batch& batch, StepId id, const WorkerJob& then = {});
  // Where gradients are applied one step late: the forwards of `batch`, if there is one, beside the backwards of the batch before, if there
  // was one, whose gradients are complete then. The versions must have been settled or advanced as the steps demand. The loss is that of
  // `batch`; traffic and times are those since the last call.
  StepResult overlapped_step(const Batch* batch, const StepId& id);
  // Between that and the commit of the batch before: backwards of the batch that had its forwards, as schedule/overlapped.h says.
  void early_backwards();
  // Forward and backward of the micro-batches of a batch, whose gradients are `audit`'s to take. What they leave in BatchNorm is for
  // discard_batch().
  AuditRunResult audit(const Batch& batch, const StepId& id, const AuditRun& audit);
  // Forward only, in evaluation mode, encoders frozen.
  StepResult evaluate(const Batch& batch, StepId id);

  // One action of a step that its coordinator decides as it goes, instead of train_step(): the forward of a micro-batch, or the backward of
  // one that had its forward, on a stage in the middle. The batch is the micro-batch, without inputs. Gradients add up until begin_step().
  void begin_step();
  void run_action(const schedule::Action& action, const Batch& micro_batch, const StepId& id, bool training);

  // Every worker that is here does it, all at once; waits for them and their devices. For optimizers and their like. A step that failed
  // does not prevent it; what `work` throws is thrown.
  void on_workers(const WorkerJob& work);
  // Ends the batch: statistics gathered by its micro-batches are taken over, or dropped.
  void commit_batch();
  void discard_batch();

  int stages() const;
  int workers() const;  // everywhere
  // Of the stages that are here; between steps.
  struct GraphUse {
    int stages = 0;                     // that run as CUDA graphs by now
    std::vector<std::string> refusals;  // "stage 2: head has a forward of its own"
  };
  GraphUse graph_use() const;
  // The state of the encoders that are here, by "cut/direction/part/name"; between steps.
  codec::State encoder_state() const;
  codec::State encoder_state_before(std::uint64_t step) const;  // before anything of this step was sent, where steps overlap
  void set_encoder_state(const codec::State& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace epipe::pipeline
