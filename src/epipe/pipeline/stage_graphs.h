#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epipe/layer/layer.h"
#include "epipe/schedule/schedule.h"

namespace epipe::pipeline {

using layer::ForwardContext;
using layer::Tensors;

// The forwards and backwards of a stage as CUDA graphs, one pair for each micro-batch. Hundreds of small kernels are launched by the host
// once, recorded, and from then on started together, to the same bits.
//
//   step 0, 1   F0 F1 B0 B1   by the stage itself: libraries choose their algorithms, memory is found
//   step 2      F0 F1 B0 B1   recorded in the order of the schedule, then run
//   step 3 ..   F0 F1 B0 B1   run
//
// Memory is shared as the order of the recording allows, so a step in another order, or with micro-batches of other shapes (the last
// batch of an epoch), is left to the stage. One thread uses it, that of the stage's worker.
class StageGraphs {
 public:
  using RunLayers = std::function<Tensors(Tensors, const ForwardContext&)>;

  virtual ~StageGraphs() = default;
  // A step begins whose actions on this stage will be these.
  virtual void begin_step(const std::vector<schedule::Action>& order) = 0;
  // Runs micro-batch i and keeps what its backward needs; the outputs have no graph of autograd. None: the stage has to. `leaves` are on
  // the device, those that want a gradient say so.
  virtual std::optional<Tensors> forward(int i, const Tensors& leaves, const ForwardContext& at) = 0;
  // Of a micro-batch whose forward ran here: adds to the parameters' gradients, gives those of the leaves, undefined where there are
  // none. `gradients` are those of the outputs, undefined where nobody used one.
  virtual Tensors backward(int i, const Tensors& gradients) = 0;
  // Why it leaves everything to the stage; empty while it does not.
  virtual const std::string& refusal() const = 0;
  virtual bool recorded() const = 0;  // steps run as graphs now, or some of their micro-batches
};

// Null where the device is no CUDA device or the build has no CUDA. `run` runs the layers; both outlive this.
std::unique_ptr<StageGraphs> make_stage_graphs(const std::vector<std::shared_ptr<layer::Layer>>& layers, torch::Device device,
                                               StageGraphs::RunLayers run);

}  // namespace epipe::pipeline
