#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/base/memory.h"
#include "epipe/model/costs.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

std::int64_t bytes_of(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

Tensors on_device(const Tensors& tensors, torch::Device device) {
  Tensors there;
  for (const auto& tensor : tensors) there.push_back(tensor.to(device));
  return there;
}

// One layer in a row of them.
class TimedLayer {
 public:
  TimedLayer(const LayerMaker& maker, bool last, const TimingOptions& options) : layer_(maker.make()), last_(last), options_(options) {
    layer_->initialize(0);
    layer_->to(options.device);
  }

  // Returns the outputs without their graph, for the next layer.
  Tensors forward(const Tensors& inputs, bool from_layer, const ForwardContext& at) {
    leaves_.clear();
    for (const auto& input : inputs) leaves_.push_back(input.detach().requires_grad_(from_layer && input.is_floating_point()));
    const std::uint64_t before = allocated_bytes();
    const Stopwatch watch;
    outputs_ = layer_forward(at);
    forward_.push_back(finished(watch));
    const std::uint64_t after = allocated_bytes();
    const bool counted = after > before && options_.device.is_cpu();
    kept_ = std::min(kept_, counted ? static_cast<std::int64_t>(after - before) : 3 * bytes_of(outputs_));
    Tensors outputs;
    for (const auto& output : outputs_) outputs.push_back(output.detach());
    return outputs;
  }

  // From the gradients of its outputs to those of its inputs; undefined ones count as ones. Keeps nothing.
  Tensors backward(const Tensors& of_outputs) {
    Tensors roots;
    Tensors gradients;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      if (!outputs_[k].requires_grad()) continue;
      roots.push_back(outputs_[k]);
      const bool known = k < of_outputs.size() && of_outputs[k].defined();
      gradients.push_back(known ? of_outputs[k] : torch::ones_like(outputs_[k]));
    }
    const Stopwatch watch;
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    backward_.push_back(finished(watch));
    Tensors of_inputs;
    for (const auto& leaf : leaves_) of_inputs.push_back(leaf.grad());
    discard();
    return of_inputs;
  }

  void discard() {
    layer_->discard_batch();
    for (auto& parameter : layer_->parameters()) parameter.mutable_grad() = torch::Tensor();
    outputs_.clear();
    leaves_.clear();
  }

  LayerTiming timing() const { return {median(forward_), median(backward_), kept_}; }
  // Of its weights, and of a micro-batch.
  std::int64_t bytes() const {
    std::int64_t weights = 0;
    for (const auto& parameter : layer_->parameters()) weights += static_cast<std::int64_t>(parameter.nbytes());
    return weights + kept_;
  }
  void forget_times() { forward_.clear(); }

 private:
  Tensors layer_forward(const ForwardContext& at) {
    const layer::Autocast precision(options_.device.type(), options_.precision, /*keep_casts=*/false);
    Tensors outputs = layer_->forward(leaves_, at);
    return last_ && options_.loss ? Tensors{options_.loss(outputs)} : outputs;
  }

  double finished(const Stopwatch& watch) const {
    if (options_.device.is_cuda()) torch::cuda::synchronize(options_.device.index());
    return watch.seconds();
  }

  std::shared_ptr<layer::Layer> layer_;  // possibly shared with its maker
  const bool last_;                      // of the model
  const TimingOptions& options_;
  Tensors leaves_;
  Tensors outputs_;
  std::vector<double> forward_;
  std::vector<double> backward_;
  std::int64_t kept_ = std::numeric_limits<std::int64_t>::max();
};

// Consecutive layers that fit into the memory for it. They run one after the other, all forwards, then all backwards, as those of a stage
// do: a layer that ran again at once would find its weights and activations in the caches.
class Row {
 public:
  Row(const Architecture& architecture, std::size_t begin, const TimingOptions& options)
      : architecture_(architecture), begin_(begin), options_(options) {}

  // Inputs of the first layer -> those of the layer behind the last.
  Tensors run(const Tensors& inputs, const ForwardContext& at) {
    Tensors x = take_layers(inputs, at);
    for (int round = 0; round < options_.rounds; ++round) {
      x = inputs;
      for (std::size_t k = 0; k < layers_.size(); ++k) x = layers_[k].forward(x, begin_ + k > 0, at);
      Tensors gradients;
      for (std::size_t k = layers_.size(); k-- > 0;) gradients = layers_[k].backward(gradients);
    }
    return x;
  }

  std::size_t end() const { return begin_ + layers_.size(); }
  void append_timings(std::vector<LayerTiming>& timings) const {
    for (const TimedLayer& layer : layers_) timings.push_back(layer.timing());
  }

 private:
  Tensors take_layers(const Tensors& inputs, const ForwardContext& at) {
    Tensors x = inputs;
    for (std::int64_t bytes = 0; end() < architecture_.layers.size() && (layers_.empty() || bytes < options_.row_bytes);) {
      TimedLayer& layer = layers_.emplace_back(architecture_.layers[end()], end() + 1 == architecture_.layers.size(), options_);
      x = layer.forward(x, end() > 1, at);
      layer.forget_times();  // of the first call
      bytes += layer.bytes();
    }
    for (TimedLayer& layer : layers_) layer.discard();
    return x;
  }

  const Architecture& architecture_;
  const std::size_t begin_;
  const TimingOptions& options_;
  std::deque<TimedLayer> layers_;
};

}  // namespace

std::vector<LayerTiming> time_layers(const Architecture& architecture, const Tensors& sample, const ForwardContext& at,
                                     const TimingOptions& options) {
  std::vector<LayerTiming> timings;
  ForwardContext there = at;
  there.side = on_device(at.side, options.device);
  Tensors x = on_device(sample, options.device);
  while (timings.size() < architecture.layers.size()) {
    Row row(architecture, timings.size(), options);
    x = row.run(x, there);
    row.append_timings(timings);
  }
  return timings;
}

}  // namespace epipe::model
