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

// The forwards and backwards of a stage as CUDA graphs, one pair per micro-batch. The host launches hundreds of small kernels once, while
// recording; from then on they are launched together, with bit-identical results.
//
//   step 0, 1   F0 F1 B0 B1   by the stage itself: libraries choose their algorithms, memory is allocated
//   step 2      F0 F1 B0 B1   recorded in the order of the schedule, then run
//   step 3 ..   F0 F1 B0 B1   run
//
// Memory is shared according to the recorded order, so a step in another order, or with micro-batches of other shapes (the last batch of
// an epoch), is left to the stage. Only the thread of the stage's worker uses it.
class StageGraphs {
 public:
  using RunLayers = std::function<Tensors(Tensors, const ForwardContext&)>;

  virtual ~StageGraphs() = default;
  // Begins a step with these actions on this stage.
  virtual void begin_step(const std::vector<schedule::Action>& order) = 0;
  // Runs micro-batch i and keeps what its backward needs; the outputs have no autograd graph. Nullopt: the stage must run it. `leaves` are
  // on the device and have requires_grad set as needed.
  virtual std::optional<Tensors> forward(int i, const Tensors& leaves, const ForwardContext& at) = 0;
  // For a micro-batch whose forward ran here: adds to the parameters' gradients and returns the leaves' gradients, undefined if there are
  // none. `gradients` holds the outputs' gradients, undefined for unused outputs.
  virtual Tensors backward(int i, const Tensors& gradients) = 0;
  // Why it leaves everything to the stage; empty if it does not.
  virtual const std::string& refusal() const = 0;
  virtual bool recorded() const = 0;  // steps, or some of their micro-batches, run as graphs now
};

// Null if the device is not a CUDA device or the build has no CUDA. `run` runs the layers; both outlive this.
std::unique_ptr<StageGraphs> make_stage_graphs(const std::vector<std::shared_ptr<layer::Layer>>& layers, torch::Device device,
                                               StageGraphs::RunLayers run);

}  // namespace epipe::pipeline
