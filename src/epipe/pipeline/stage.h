#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <vector>

#include "epipe/layer/autocast.h"
#include "epipe/layer/layer.h"
#include "epipe/pipeline/split_backward.h"
#include "epipe/pipeline/stage_graphs.h"

namespace epipe::pipeline {

using layer::ForwardContext;
using layer::Layer;

// Consecutive layers on one device, and the micro-batches that are between their forward and their backward. One thread uses it.
class Stage {
 public:
  struct Options {
    bool recompute = false;       // keep only the inputs of a micro-batch, and run its forward again before its backward
    bool mask_gradients = false;  // gradients of inputs that are 0 are 0
    layer::Precision precision = layer::Precision::kFp32;
    std::int64_t input_edge = 0;  // inputs are images of another size: resize them on the device; 0: take them as they are
    bool graphs = false;          // on a CUDA device, see stage_graphs.h
  };

  // The layers are shared with the model, which reads their weights between steps.
  Stage(std::vector<std::shared_ptr<Layer>> layers, torch::Device device, const Options& options);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Runs micro-batch i and keeps what its backward needs. `from_peer`: the inputs came through a cut and want a gradient.
  // The outputs have their graph where has_graph(i): a cut detaches them, a loss may be made of them.
  Tensors forward(int i, const Tensors& inputs, bool from_peer, const ForwardContext& at);
  bool has_graph(int i) const;
  // Runs micro-batch i without keeping anything.
  Tensors evaluate(const Tensors& inputs, const ForwardContext& at);

  // Adds the gradients of micro-batch i to the parameters and gives those of its inputs; `gradients` are those of its outputs, undefined
  // where nobody used one.
  Tensors backward(int i, const Tensors& gradients);
  // The same from a loss that was made of its outputs, in one go.
  Tensors backward_from_loss(int i, const torch::Tensor& loss);

  // The same in two parts, the gradients of the inputs now and those of the parameters later (split_backward.h): backward_input() or
  // backward_input_from_loss(), then backward_weights().
  Tensors backward_input(int i, const Tensors& gradients);
  Tensors backward_input_from_loss(int i, const torch::Tensor& loss);
  void backward_weights(int i);

  // Whether no gradient of a parameter holds NaN or Inf. Waits for the device.
  bool gradients_finite() const;

  int live() const { return static_cast<int>(live_.size() + split_.size()); }
  int peak_live() const { return peak_live_; }

  // Ends the batch: statistics gathered by its micro-batches are taken over.
  void commit_batch();
  // Before a step: no gradients, nothing live. `order`: what will run on it, where that is known.
  void reset(const std::vector<schedule::Action>& order = {});
  // Why its micro-batches are not run as CUDA graphs, though they should be; empty: they are, or may be yet.
  std::string graphs_refusal() const { return graphs_ ? graphs_->refusal() : ""; }
  bool runs_graphs() const { return graphs_ && graphs_->recorded(); }
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  torch::Device device() const { return device_; }

 private:
  struct Live {
    Tensors inputs;   // leaves
    Tensors outputs;  // with their graph; empty until the backward recomputes them
    ForwardContext at;
    bool graphed = false;  // outputs and what made them are with graphs_
  };

  // Where a backward starts.
  struct Start {
    Tensors outputs;    // with their graph
    Tensors gradients;  // theirs, all defined
  };

  torch::Tensor taken(const torch::Tensor& input) const;
  Tensors run_layers(Tensors x, const ForwardContext& at);
  Live take_live(int i);
  Start start_of(Live& live, const Tensors& gradients);
  Tensors split_backward(int i, const Start& start, const Live& live);
  Tensors input_gradients(const Live& live, const Tensors& gradients) const;

  std::vector<std::shared_ptr<Layer>> layers_;
  torch::Device device_;
  Options options_;
  std::map<int, Live> live_;            // by micro-batch
  std::map<int, SplitBackward> split_;  // those that have only their parameters' gradients left to compute
  int peak_live_ = 0;
  std::unique_ptr<StageGraphs> graphs_;  // null: none
};

}  // namespace epipe::pipeline
