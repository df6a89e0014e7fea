#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace epipe::layer {

using Tensors = std::vector<torch::Tensor>;
class KeyValueCache;  // attention.h
class DropoutKeys;    // dropout_keys.h

// Identifies a forward within a run. All randomness is a function of this and of names, never of timing or placement.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::int64_t> samples;  // ids of the micro-batch's samples, in order
  Tensors side;                       // side inputs of the micro-batch (attention mask), the same for every layer
  bool training = true;
  bool recompute = false;  // the same micro-batch again: its statistics have been taken already
  // False if a custom loop runs the layers, batch by batch and nothing twice: BatchNorm updates its statistics with every forward and
  // dropout draws from LibTorch's generator, like PyTorch's own modules.
  bool pipelined = true;
  KeyValueCache* cache = nullptr;  // the preceding tokens, when text is generated token by token; null: there are none
  // The device's work is recorded and replayed for other steps: a layer that reads anything here but `training` and `side`, or values of
  // tensors, calls refuse_capture(). Dropout takes its keys from `keys`, which are written before each run.
  bool capturing = false;
  DropoutKeys* keys = nullptr;
};

// Thrown by a layer whose forward cannot be recorded; what() says why.
struct NotCapturable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void refuse_capture(const ForwardContext& at, std::string_view who, std::string_view why);  // does nothing unless recording

// The smallest unit of a model: one or several tensors in, one or several out. Parameters and buffers belong to the module; in weights
// files they are named prefix + key.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(const std::string& name) : Layer(name, name + ".") {}
  // For names in weights files that do not begin with the layer's name: ("stem", "") for "conv1.weight".
  Layer(const std::string& name, std::string prefix) : torch::nn::Module(name), prefix_(std::move(prefix)) {}

  virtual Tensors forward(const Tensors& in, const ForwardContext& at) = 0;
  // Multiplications and additions of one forward with these shapes, for balancing stages.
  virtual double flops(const Tensors& in, const Tensors& out) const = 0;

  // Initializes the weights, a function of (seed, full names) only; PyTorch's own defaults unless overridden.
  virtual void initialize(std::uint64_t seed);

  // Called once per batch, after its backward: the statistics gathered by its micro-batches become part of the layer, or are dropped.
  virtual void commit_batch();
  virtual void discard_batch();
  // Called once per batch, after its last backward and before the gradients are used: a layer that uses a parameter of another layer on
  // the same worker adds its own part to that gradient. `late_gradients` returns those parameters with their full names.
  virtual void finish_gradients() {}
  virtual std::vector<std::pair<std::string, torch::Tensor>> late_gradients() const { return {}; }
  // The statistics gathered so far, float64 [n] on the CPU; n never changes. If their sum over replicas is set in each before the commit,
  // each commits as if it had seen the whole batch.
  virtual torch::Tensor batch_totals() const;
  virtual void set_batch_totals(const torch::Tensor& totals);

  std::string full_name(const std::string& key) const { return prefix_ + key; }

 private:
  std::string prefix_;
};

// A module that gathers statistics; its layer forwards these calls to it.
class BatchStatistics {
 public:
  virtual ~BatchStatistics() = default;
  virtual void commit_batch() = 0;
  virtual void discard_batch() = 0;
  virtual torch::Tensor batch_totals() const = 0;
  virtual void set_batch_totals(const torch::Tensor& totals) = 0;
};

}  // namespace epipe::layer
