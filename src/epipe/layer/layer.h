#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::layer {

using Tensors = std::vector<torch::Tensor>;

// Where in a run a forward happens. All randomness is a function of this and of names, never of timing or placement.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::int64_t> samples;  // ids of the micro-batch's samples, in order
  Tensors side;                       // side inputs of the micro-batch (attention mask), the same for every layer
  bool training = true;
  bool recompute = false;  // the same micro-batch again: statistics were taken the first time
};

// The smallest unit of a model: one or several tensors in, one or several out. Parameters and buffers are the module's, under
// the names that weights files use below the layer's own name.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(const std::string& name) : torch::nn::Module(name) {}

  virtual Tensors forward(const Tensors& in, const ForwardContext& at) = 0;
  // Multiplications and additions of one forward of these shapes, for the balance of stages.
  virtual double flops(const Tensors& in, const Tensors& out) const = 0;

  // Once per batch, after its backward: statistics gathered by the micro-batches become part of the layer, or are dropped.
  virtual void commit_batch() {}
  virtual void discard_batch() {}
};

// A module that gathers statistics; a layer forwards both calls to those it holds.
class BatchStatistics {
 public:
  virtual ~BatchStatistics() = default;
  virtual void commit_batch() = 0;
  virtual void discard_batch() = 0;
};

}  // namespace epipe::layer
