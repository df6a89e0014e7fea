#include <torch/csrc/autograd/autograd.h>

#include "epipe/model/costs.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

std::shared_ptr<layer::Layer> with_first_weights(const LayerMaker& maker) {
  auto layer = maker.make();
  layer->initialize(0);
  return layer;
}

// Of a layer's inputs, from those of its outputs; undefined where a tensor has none.
Tensors input_gradients(layer::Layer& layer, const Tensors& inputs, const ForwardContext& at,
                        const std::function<void(const Tensors& outputs)>& backward) {
  Tensors leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().requires_grad_(input.is_floating_point()));
  backward(layer.forward(leaves, at));
  Tensors gradients;
  for (const auto& leaf : leaves) gradients.push_back(leaf.grad());
  for (auto& parameter : layer.parameters()) parameter.mutable_grad() = torch::Tensor();
  layer.discard_batch();
  return gradients;
}

void run_backward(const Tensors& outputs, const Tensors& gradients) {
  Tensors roots;
  Tensors of_roots;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!outputs[k].requires_grad() || !gradients[k].defined()) continue;
    roots.push_back(outputs[k]);
    of_roots.push_back(gradients[k]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, of_roots);
}

}  // namespace

std::vector<BoundaryTensors> boundary_tensors(const Architecture& architecture, const Tensors& sample, const ForwardContext& at,
                                              const std::function<torch::Tensor(const Tensors& outputs)>& loss) {
  std::vector<Tensors> inputs = {sample};  // by layer
  for (std::size_t l = 0; l + 1 < architecture.layers.size(); ++l) {
    const torch::NoGradGuard no_grad;
    const auto layer = with_first_weights(architecture.layers[l]);
    inputs.push_back(layer->forward(inputs.back(), at));
    layer->discard_batch();
  }
  std::vector<BoundaryTensors> tensors(inputs.size() - 1);
  Tensors gradients;
  for (std::size_t l = inputs.size(); l-- > 1;) {
    const bool last = l + 1 == inputs.size();
    const auto layer = with_first_weights(architecture.layers[l]);
    gradients = input_gradients(*layer, inputs[l], at, [&](const Tensors& outputs) {
      last ? loss(outputs).backward() : run_backward(outputs, gradients);
    });
    const torch::Tensor& x = inputs[l][0];
    tensors[l - 1] = {x, gradients[0].defined() ? gradients[0] : torch::zeros_like(x, torch::kFloat32)};
  }
  return tensors;
}

}  // namespace epipe::model
