#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include <algorithm>
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

// Times rounds of one layer.
class TimedLayer {
 public:
  TimedLayer(const LayerMaker& maker, const TimingOptions& options) : layer_(maker.make()), options_(options) {
    layer_->initialize(0);
    layer_->to(options.device);
  }

  void run(const Tensors& inputs, bool from_layer, const ForwardContext& at) {
    Tensors leaves;
    for (const auto& input : inputs) leaves.push_back(input.detach().requires_grad_(from_layer && input.is_floating_point()));
    const std::uint64_t before = allocated_bytes();
    const Stopwatch forward;
    const Tensors outputs = layer_forward(leaves, at);
    forward_.push_back(finished(forward));
    const std::uint64_t after = allocated_bytes();
    kept_ = std::min(kept_, after > before && options_.device.is_cpu() ? static_cast<std::int64_t>(after - before) : 3 * bytes_of(outputs));
    backward_.push_back(backward(outputs));
    layer_->discard_batch();
    for (auto& parameter : layer_->parameters()) parameter.mutable_grad() = torch::Tensor();
    outputs_.clear();
    for (const auto& output : outputs) outputs_.push_back(output.detach());
  }

  LayerTiming timing() const { return {median(forward_), median(backward_), kept_}; }
  const Tensors& outputs() const { return outputs_; }  // without their graph

 private:
  Tensors layer_forward(const Tensors& inputs, const ForwardContext& at) {
    const layer::Autocast precision(options_.device.type(), options_.precision, /*keep_casts=*/false);
    return layer_->forward(inputs, at);
  }

  double finished(const Stopwatch& watch) const {
    if (options_.device.is_cuda()) torch::cuda::synchronize(options_.device.index());
    return watch.seconds();
  }

  double backward(const Tensors& outputs) const {
    Tensors roots;
    Tensors gradients;
    for (const auto& output : outputs) {
      if (!output.requires_grad()) continue;
      roots.push_back(output);
      gradients.push_back(torch::ones_like(output));
    }
    const Stopwatch watch;
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    return finished(watch);
  }

  std::shared_ptr<layer::Layer> layer_;  // possibly shared with its maker
  const TimingOptions& options_;
  std::vector<double> forward_;
  std::vector<double> backward_;
  std::int64_t kept_ = std::numeric_limits<std::int64_t>::max();
  Tensors outputs_;
};

}  // namespace

std::vector<LayerTiming> time_layers(const Architecture& architecture, const Tensors& sample, const ForwardContext& at,
                                     const TimingOptions& options) {
  std::vector<LayerTiming> timings;
  ForwardContext there = at;
  there.side = on_device(at.side, options.device);
  Tensors x = on_device(sample, options.device);
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    TimedLayer layer(architecture.layers[l], options);
    for (int round = 0; round < options.rounds; ++round) layer.run(x, l > 0, there);
    timings.push_back(layer.timing());
    x = layer.outputs();
    if (options.observe) options.observe(l, x);
  }
  return timings;
}

}  // namespace epipe::model
