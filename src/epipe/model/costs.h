#pragma once

#include <functional>
#include <string>
#include <vector>

#include "epipe/layer/autocast.h"
#include "epipe/model/architecture.h"

// What an architecture costs and where to cut it. Layers are made one at a time, run and dropped; timing keeps some of them.
namespace epipe::model {

using LayerObserver = std::function<void(const layer::Layer& layer, const layer::Tensors& in, const layer::Tensors& out)>;

// Runs one forward in the mode of `at`, without gradients and on uninitialized weights; `observe` sees every layer. Returns the outputs,
// whose shapes and types are the model's.
layer::Tensors forward_layer_by_layer(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                      const LayerObserver& observe = {});

// The cost of one layer for the given samples.
struct LayerCost {
  std::string name;
  std::int64_t parameters = 0;
  double flops = 0;                               // multiplications and additions of one forward
  std::vector<std::vector<std::int64_t>> shapes;  // of its outputs, which a cut after it carries
};

// The costs of all layers, from one forward in the mode of `at`.
std::vector<LayerCost> layer_costs(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at);

// The time and memory of one layer of a stage on this machine, for the given samples.
struct LayerTiming {
  double forward = 0;  // seconds, the median of the rounds
  double backward = 0;
  std::int64_t kept_bytes = 0;  // memory held between its forward and its backward, with outputs, without inputs
};

struct TimingOptions {
  int rounds = 5;
  torch::Device device = torch::kCPU;
  layer::Precision precision = layer::Precision::kFp32;
  // Of the model's outputs, with the samples' targets: its time counts as the last layer's, as in a run. Null: gradients are ones.
  std::function<torch::Tensor(const layer::Tensors& outputs)> loss{};
  std::int64_t row_bytes = std::int64_t{1} << 29;  // of weights and activations: layers beyond them are made and timed when these are gone
};

// The timings of all layers, in the mode of `at`. The data itself needs no gradient. On a CUDA device, or if the C library cannot report
// allocations, kept_bytes is estimated as three times the outputs.
std::vector<LayerTiming> time_layers(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                     const TimingOptions& options);

// What a cut after a layer carries: its first output and the gradient of that, of the same shape.
struct BoundaryTensors {
  torch::Tensor activation;
  torch::Tensor gradient;
};

// Those of all layers but the last, from one forward and backward with first weights on the CPU. `loss` makes a scalar of the model's
// outputs. Each layer is made and run twice; the outputs of all are in memory.
std::vector<BoundaryTensors> boundary_tensors(const Architecture& architecture, const layer::Tensors& sample,
                                              const layer::ForwardContext& at,
                                              const std::function<torch::Tensor(const layer::Tensors& outputs)>& loss);

// The layer that a cut names by index or name: the first of the next stage. Throws std::invalid_argument.
std::size_t resolve_cut(const std::string& text, const Architecture& architecture);

// Cuts into `stages` stages with about equal FLOPs, from a forward of `sample` (one sample). Returns layer indices, ascending. Depends on
// shapes only, never on timing. Throws std::invalid_argument if there are fewer layers than stages.
std::vector<std::size_t> balanced_cuts(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                       int stages);

// The same by the time each layer takes on this machine, forward and backward: medians of a few rounds with `sample`, a micro-batch. The
// result depends on the machine, so a run records it.
std::vector<std::size_t> measured_cuts(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                       int stages);

}  // namespace epipe::model
