#include "epipe/pipeline/stage.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/memory_format.h"

namespace epipe::pipeline {

Stage::Stage(std::vector<std::shared_ptr<Layer>> layers, torch::Device device, const Options& options)
    : layers_(std::move(layers)), device_(device), options_(options) {
  for (const auto& layer : layers_) {
    layer->to(device_);
    if (layer::wants_channels_last(device_)) layer::to_channels_last(*layer);
  }
  if (!options_.graphs || options_.recompute || layers_.empty()) return;
  graphs_ = make_stage_graphs(layers_, device_, [this](Tensors x, const ForwardContext& at) { return run_layers(std::move(x), at); });
}

void Stage::commit_batch() { layer::commit_batch(layers_); }

void Stage::reset(const std::vector<schedule::Action>& order) {
  if (graphs_) graphs_->begin_step(order);
  live_.clear();
  split_.clear();
  peak_live_ = 0;
  for (const auto& layer : layers_) {
    for (auto& parameter : layer->parameters()) parameter.mutable_grad() = torch::Tensor();
  }
}

// An input on this device, in the size that the layers expect. Bilinear, pixel centres as in image libraries.
torch::Tensor Stage::taken(const torch::Tensor& input) const {
  torch::Tensor here = input.to(device_);
  const std::int64_t edge = options_.input_edge;
  if (edge == 0 || here.dim() != 4 || (here.size(2) == edge && here.size(3) == edge)) return here;
  const torch::NoGradGuard no_grad;
  return torch::upsample_bilinear2d(here, {edge, edge}, /*align_corners=*/false, {}, {});
}

// The forward that recompute repeats has no graph, and neither have its casts of weights. A recorded one makes its own casts.
Tensors Stage::run_layers(Tensors x, const ForwardContext& at) {
  const bool keep_casts = !at.capturing && (!at.training || torch::GradMode::is_enabled());
  const layer::Autocast autocast(device_.type(), options_.precision, keep_casts);
  // Autocast keeps casts of leaves, as if they were weights; the stage's inputs must not look like leaves, or they would be kept for the
  // whole step and their gradients summed in 16 bits, which those of tensors between layers are not.
  for (auto& input : x) {
    if (options_.precision != layer::Precision::kFp32 && input.requires_grad()) input = input.view_as(input);
  }
  for (const auto& layer : layers_) {
    if (layer::wants_channels_last(device_)) x = layer::channels_last(std::move(x));  // at every layer: a cut must change nothing
    x = layer->forward(x, at);
  }
  return x;
}

Tensors Stage::forward(int i, const Tensors& inputs, bool from_peer, const ForwardContext& at) {
  Live live;
  live.at = at;
  for (auto& side : live.at.side) side = side.to(device_);
  for (const auto& input : inputs) {
    auto leaf = taken(input.detach());
    live.inputs.push_back(leaf.requires_grad_(from_peer && leaf.is_floating_point()));
  }
  Tensors outputs;
  if (auto ran = graphs_ ? graphs_->forward(i, live.inputs, live.at) : std::nullopt) {
    outputs = std::move(*ran);
    live.graphed = true;
  } else if (options_.recompute) {
    const torch::NoGradGuard no_grad;
    outputs = run_layers(live.inputs, live.at);
    live.at.recompute = true;
  } else {
    outputs = live.outputs = run_layers(live.inputs, live.at);
  }
  live_.insert_or_assign(i, std::move(live));
  peak_live_ = std::max(peak_live_, this->live());
  return outputs;
}

bool Stage::has_graph(int i) const {
  const auto found = live_.find(i);
  return found != live_.end() && !found->second.graphed && !options_.recompute;
}

Tensors Stage::evaluate(const Tensors& inputs, const ForwardContext& at) {
  const torch::NoGradGuard no_grad;
  ForwardContext here = at;
  Tensors x;
  for (auto& side : here.side) side = side.to(device_);
  for (const auto& input : inputs) x.push_back(taken(input));
  return run_layers(std::move(x), here);
}

bool Stage::gradients_finite() const {
  const torch::NoGradGuard no_grad;
  Tensors finite;
  for (const auto& layer : layers_) {
    for (const auto& parameter : layer->parameters()) {
      if (parameter.grad().defined()) finite.push_back(torch::isfinite(parameter.grad()).all());
    }
  }
  return finite.empty() || torch::stack(finite).all().item<bool>();
}

Stage::Live Stage::take_live(int i) {
  const auto found = live_.find(i);
  TORCH_CHECK(found != live_.end(), "backward of micro-batch ", i, " without its forward");
  Live live = std::move(found->second);
  live_.erase(found);
  return live;
}

namespace {

bool wants_gradients(const Tensors& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [](const auto& output) { return output.requires_grad(); });
}

Tensors gradients_in(const Tensors& leaves) {
  Tensors gradients;
  for (const auto& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

}  // namespace

Tensors Stage::backward_from_loss(int i, const torch::Tensor& loss) {
  const Live live = take_live(i);
  if (wants_gradients(live.outputs)) loss.backward();
  return input_gradients(live, gradients_in(live.inputs));
}

Tensors Stage::backward(int i, const Tensors& gradients) {
  Live live = take_live(i);
  if (live.graphed) return input_gradients(live, graphs_->backward(i, gradients));
  const Start start = start_of(live, gradients);
  if (!start.outputs.empty()) torch::autograd::backward(start.outputs, start.gradients);
  return input_gradients(live, gradients_in(live.inputs));
}

Stage::Start Stage::start_of(Live& live, const Tensors& gradients) {
  if (options_.recompute) live.outputs = run_layers(live.inputs, live.at);
  TORCH_CHECK(gradients.size() == live.outputs.size(), "expected ", live.outputs.size(), " gradients, got ", gradients.size());
  Start start;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].defined() || !live.outputs[k].requires_grad()) continue;
    start.outputs.push_back(live.outputs[k]);
    start.gradients.push_back(gradients[k].to(device_));
  }
  return start;
}

Tensors Stage::backward_input_from_loss(int i, const torch::Tensor& loss) {
  const Live live = take_live(i);
  return split_backward(i, wants_gradients(live.outputs) ? Start{{loss}, {torch::ones_like(loss)}} : Start{}, live);
}

Tensors Stage::backward_input(int i, const Tensors& gradients) {
  Live live = take_live(i);
  const Start start = start_of(live, gradients);
  return split_backward(i, start, live);
}

Tensors Stage::split_backward(int i, const Start& start, const Live& live) {
  return input_gradients(live, split_[i].run_inputs(start.outputs, start.gradients, live.inputs));
}

void Stage::backward_weights(int i) {
  auto split = split_.extract(i);
  TORCH_CHECK(!split.empty(), "gradients of the weights for micro-batch ", i, " before that of the input");
  split.mapped().run_weights();
}

// `gradients` as autograd has them: none where an input had no part in the outputs.
Tensors Stage::input_gradients(const Live& live, const Tensors& gradients) const {
  Tensors all;
  for (std::size_t k = 0; k < live.inputs.size(); ++k) {
    const torch::Tensor& input = live.inputs[k];
    torch::Tensor gradient = gradients[k];
    if (input.requires_grad() && !gradient.defined()) gradient = torch::zeros_like(input);
    if (options_.mask_gradients && gradient.defined()) gradient = torch::where(input.detach() == 0, torch::zeros_like(gradient), gradient);
    all.push_back(std::move(gradient));
  }
  return all;
}

}  // namespace epipe::pipeline
