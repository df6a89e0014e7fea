#pragma once

#include <functional>
#include <string>
#include <vector>

#include "epipe/layer/autocast.h"
#include "epipe/model/architecture.h"

// What an architecture costs and where to cut it. Layers are made one at a time, run and dropped: looking at a model never holds more than
// one of them and its activations.
namespace epipe::model {

using LayerObserver = std::function<void(const layer::Layer& layer, const layer::Tensors& in, const layer::Tensors& out)>;

// One forward in the mode of `at`, without gradients and without first values; `observe` sees every layer. What comes out at the end: its
// shapes and types are those of the model.
layer::Tensors forward_layer_by_layer(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                      const LayerObserver& observe = {});

// What one layer costs for the samples it was given.
struct LayerCost {
  std::string name;
  std::int64_t parameters = 0;
  double flops = 0;                               // multiplications and additions of one forward
  std::vector<std::vector<std::int64_t>> shapes;  // of its outputs: what a cut after it carries
};

// Of every layer, from one forward in the mode of `at`.
std::vector<LayerCost> layer_costs(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at);

// What one layer takes here by itself, for the samples it was given.
struct LayerTiming {
  double forward = 0;  // seconds, the median of the rounds
  double backward = 0;
  std::int64_t kept_bytes = 0;  // what is held between its forward and its backward, outputs included; the inputs are those of another
};

struct TimingOptions {
  int rounds = 5;
  torch::Device device = torch::kCPU;
  layer::Precision precision = layer::Precision::kFp32;
  std::function<void(std::size_t layer, const layer::Tensors& outputs)> observe{};  // of its last round
};

// Of every layer, in the mode of `at`. The data itself wants no gradient. On a CUDA device, and where the C library cannot say what is
// allocated, three times the outputs stand for what is kept.
std::vector<LayerTiming> time_layers(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                     const TimingOptions& options);

// The layer that a cut names, by its index or its name: the first of the next stage. Throws std::invalid_argument.
std::size_t resolve_cut(const std::string& text, const Architecture& architecture);

// Cuts into so many stages with about equal FLOPs, from a forward of `sample` (one sample): layer indices, ascending. Depends on shapes
// only, never on timing. Throws std::invalid_argument when there are fewer layers than stages.
std::vector<std::size_t> balanced_cuts(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                       int stages);

// The same with the time that each layer takes here, forward and backward: medians of a few rounds with `sample`, a micro-batch. Depends on
// the machine, so a run records what it chose.
std::vector<std::size_t> measured_cuts(const Architecture& architecture, const layer::Tensors& sample, const layer::ForwardContext& at,
                                       int stages);

}  // namespace epipe::model
