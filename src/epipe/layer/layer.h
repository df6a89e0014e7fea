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

// Where in a run a forward happens. All randomness is a function of this and of names, never of timing or placement.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::int64_t> samples;  // ids of the micro-batch's samples, in order
  Tensors side;                       // side inputs of the micro-batch (attention mask), the same for every layer
  bool training = true;
  bool recompute = false;  // the same micro-batch again: statistics were taken the first time
  // False where a loop of one's own runs the layers, batch by batch and nothing twice: BatchNorm moves its statistics with every forward
  // and dropout draws from LibTorch's generator, as PyTorch's own do.
  bool pipelined = true;
  KeyValueCache* cache = nullptr;  // of the tokens before these, where text is generated token by token; null: the tokens are the first
  // What the device is told to do is recorded and done again for other steps: a layer that reads anything here but `training` and `side`,
  // or values of tensors, calls refuse_capture(). Dropout takes its keys from `keys`, where they are written before each run.
  bool capturing = false;
  DropoutKeys* keys = nullptr;
};

// Thrown by a layer whose forward cannot be recorded; says why.
struct NotCapturable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void refuse_capture(const ForwardContext& at, std::string_view who, std::string_view why);  // only while it is recorded

// The smallest unit of a model: one or several tensors in, one or several out. Parameters and buffers are the module's; in weights
// files they are called prefix + key.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(const std::string& name) : Layer(name, name + ".") {}
  // Where the names in weights files do not begin with the layer's own: ("stem", "") for "conv1.weight".
  Layer(const std::string& name, std::string prefix) : torch::nn::Module(name), prefix_(std::move(prefix)) {}

  virtual Tensors forward(const Tensors& in, const ForwardContext& at) = 0;
  // Multiplications and additions of one forward of these shapes, for the balance of stages.
  virtual double flops(const Tensors& in, const Tensors& out) const = 0;

  // The first weights, a function of (seed, full names) only; PyTorch's own defaults unless a layer says otherwise.
  virtual void initialize(std::uint64_t seed);

  // Once per batch, after its backward: statistics gathered by the micro-batches become part of the layer, or are dropped.
  virtual void commit_batch();
  virtual void discard_batch();
  // Once per batch, after its last backward and before anybody uses its gradients: a layer that uses a parameter of another one on the
  // same worker adds its own part to that gradient. `late_gradients` are those parameters.
  virtual void finish_gradients() {}
  virtual Tensors late_gradients() const { return {}; }
  // What was gathered so far, float64 [n] on the CPU; n never changes. Its sum over replicas, set in each before the commit, makes each
  // commit as if it had seen the whole batch.
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
