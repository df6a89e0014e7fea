#include "epipe/pipeline/stage_graphs.h"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/dropout_keys.h"
#include "epipe/pipeline/cuda/capture.h"

namespace epipe::pipeline {
namespace {

using layer::DeferredBatchNorm;
using layer::Layer;
using schedule::Action;
using schedule::Kind;

constexpr int kWarmUps = 2;  // initial steps without graphs

// What a recording depends on besides the weights.
struct Shape {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  torch::ScalarType type = torch::kFloat32;
  bool wants_gradient = false;
  bool operator==(const Shape&) const = default;
};

std::vector<Shape> shapes_of(const Tensors& leaves, const Tensors& side) {
  std::vector<Shape> shapes;
  for (const Tensors* const tensors : {&leaves, &side}) {
    for (const auto& x : *tensors) shapes.push_back({x.sizes().vec(), x.strides().vec(), x.scalar_type(), x.requires_grad()});
  }
  return shapes;
}

Tensors clones(const Tensors& tensors) {
  Tensors copies;
  for (const auto& x : tensors) copies.push_back(x.defined() ? x.detach().clone() : x);
  return copies;
}

void copy_into(const Tensors& to, const Tensors& from) {
  const torch::NoGradGuard no_grad;
  for (std::size_t k = 0; k < to.size(); ++k) {
    if (to[k].defined()) to[k].variable_data().copy_(from[k], /*non_blocking=*/true);  // hidden from an autograd graph that holds it
  }
}

class CudaStageGraphs final : public StageGraphs {
 public:
  CudaStageGraphs(const std::vector<std::shared_ptr<Layer>>& layers, torch::Device device, RunLayers run)
      : layers_(layers), device_(device), run_(std::move(run)), norms_(layer::batch_norms(layers)), pool_(at::cuda::graph_pool_handle()) {}

  void begin_step(const std::vector<Action>& order) override {
    replays_ = records_ = false;
    if (!refusal_.empty()) return;
    const bool whole =
        std::all_of(order.begin(), order.end(), [](const Action& a) { return a.kind == Kind::kForward || a.kind == Kind::kBackward; });
    if (!whole || order.empty()) return;
    if (order != order_) {
      if (captured_) return;  // memory was planned for the other order
      order_ = order;
      warm_ = 0;
    }
    if (captured_ && weights_moved()) return refuse("its weights moved");
    replays_ = warm_++ >= kWarmUps;
    records_ = replays_ && !captured_;
  }

  std::optional<Tensors> forward(int i, const Tensors& leaves, const ForwardContext& at) override {
    Slot& slot = slots_[i];
    slot.active = false;
    const auto shapes = shapes_of(leaves, at.side);
    // All graphs of a step add gradients to the same tensors; micro-batches use graphs only if the first one did.
    if (!replays_ || (i > 0 && !slots_[0].active)) return forget_shapes(slot, shapes);
    if (slot.shapes != shapes) return std::nullopt;
    // All are recorded in one step: memory is reused in the order of the recording.
    if (!slot.forward && (!records_ || !capture_forward(slot, leaves, at))) return std::nullopt;
    copy_into(slot.leaves, leaves);
    copy_into(slot.side, at.side);
    slot.keys->write(at);
    slot.forward->replay();
    for (std::size_t k = 0; k < slot.seen.size(); ++k) slot.seen[k].first->see(slot.seen[k].second);
    slot.active = true;
    return clones(slot.outputs);
  }

  Tensors backward(int i, const Tensors& gradients) override {
    Slot& slot = slots_.at(i);
    TORCH_CHECK(std::exchange(slot.active, i == 0), "backward of micro-batch ", i, " without its forward");
    if (!slot.backward) capture_backward(slot, gradients, i == 0);
    TORCH_CHECK(gradients.size() == slot.gradients.size(), "expected ", slot.gradients.size(), " gradients, got ", gradients.size());
    copy_into(slot.gradients, gradients);
    slot.backward->replay();
    if (i == 0) {
      for (std::size_t k = 0; k < parameters_.size(); ++k) parameters_[k].mutable_grad() = sums_[k];
    }
    return clones(slot.of_leaves);
  }

  const std::string& refusal() const override { return refusal_; }
  bool recorded() const override { return captured_; }

 private:
  // One micro-batch. The addresses a graph reads and writes do not change.
  struct Slot {
    std::vector<Shape> shapes;
    Tensors leaves, side;
    std::unique_ptr<layer::DropoutKeys> keys;
    Tensors outputs;    // with their autograd graph until the backward is recorded
    Tensors gradients;  // of the outputs; undefined if there is none
    Tensors of_leaves;
    std::vector<std::pair<DeferredBatchNorm*, DeferredBatchNorm::Seen>> seen;
    std::unique_ptr<at::cuda::CUDAGraph> forward, backward;
    bool active = false;  // its forward ran here, in this step
  };

  std::nullopt_t forget_shapes(Slot& slot, const std::vector<Shape>& shapes) {
    if (!slot.forward && slot.shapes != shapes) {
      slot.shapes = shapes;
      warm_ = std::min(warm_, 1);  // another step must match this one
    }
    return std::nullopt;
  }

  void refuse(const std::string& why) {
    refusal_ = why;
    replays_ = false;
  }

  bool capture_forward(Slot& slot, const Tensors& leaves, const ForwardContext& at) {
    slot.leaves = clones(leaves);
    for (std::size_t k = 0; k < leaves.size(); ++k) slot.leaves[k].requires_grad_(leaves[k].requires_grad());
    slot.side = clones(at.side);
    ForwardContext context = at;
    context.side = slot.side;
    context.capturing = true;
    slot.keys = std::make_unique<layer::DropoutKeys>(static_cast<std::int64_t>(at.samples.size()), device_);
    context.keys = slot.keys.get();
    std::vector<std::size_t> seen_before;
    for (const auto* norm : norms_) seen_before.push_back(norm->seen().size());
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    const std::string failure = capture(*graph, pool_, [&] { slot.outputs = run_(slot.leaves, context); });
    for (std::size_t k = 0; k < norms_.size(); ++k) {
      if (norms_[k]->seen().size() == seen_before[k]) continue;
      slot.seen.emplace_back(norms_[k], norms_[k]->seen().back());
      norms_[k]->unsee();  // nothing has run yet
    }
    if (!failure.empty()) {
      slot = {};
      refuse(failure);
      return false;
    }
    if (!captured_) remember_weights();
    captured_ = true;
    slot.forward = std::move(graph);
    return true;
  }

  void capture_backward(Slot& slot, const Tensors& gradients, bool first) {
    slot.gradients = clones(gradients);
    Tensors ends, starts, wanted;
    for (std::size_t k = 0; k < slot.outputs.size(); ++k) {
      if (!gradients[k].defined() || !slot.outputs[k].requires_grad()) {
        slot.gradients[k] = torch::Tensor();
        continue;
      }
      ends.push_back(slot.outputs[k]);
      starts.push_back(slot.gradients[k]);
    }
    for (const auto& leaf : slot.leaves) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    const std::size_t leaves = wanted.size();
    const Tensors trained = trained_parameters();
    wanted.insert(wanted.end(), trained.begin(), trained.end());
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    Tensors found;
    const std::string failure = capture(*graph, pool_, [&] {
      if (!ends.empty() && !wanted.empty()) {
        found = torch::autograd::grad(ends, wanted, starts, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
      }
      found.resize(wanted.size());
      add_up({found.begin() + static_cast<std::ptrdiff_t>(leaves), found.end()}, trained, first);
    });
    TORCH_CHECK(failure.empty(), "the backward of a stage could not be recorded as a CUDA graph: ", failure, "; run with --no-graphs");
    std::size_t next = 0;
    for (const auto& leaf : slot.leaves) slot.of_leaves.push_back(leaf.requires_grad() ? found[next++] : torch::Tensor());
    for (auto& output : slot.outputs) output = output.detach();  // frees the memory saved for the backward for other graphs
    slot.backward = std::move(graph);
  }

  // While recording: the first micro-batch of a step sets the sums, the others add to them, as autograd does.
  void add_up(const Tensors& found, const Tensors& trained, bool first) {
    const torch::NoGradGuard no_grad;
    Tensors defined;
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (!found[k].defined()) continue;
      defined.push_back(found[k]);
      if (first) {
        parameters_.push_back(trained[k]);
        sums_.push_back(reserved_.at(k));
      }
    }
    TORCH_CHECK(defined.size() == sums_.size(), "micro-batches have gradients of different parameters");
    if (defined.empty()) return;
    first ? at::_foreach_copy_(sums_, defined) : at::_foreach_add_(sums_, defined, 1);
  }

  Tensors trained_parameters() const {
    Tensors trained;
    for (const auto& layer : layers_) {
      for (const auto& parameter : layer->parameters()) {
        if (parameter.requires_grad()) trained.push_back(parameter);
      }
    }
    return trained;
  }

  std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (const auto& layer : layers_) {
      for (const auto& parameter : layer->parameters()) all.push_back(parameter.data_ptr());
      for (const auto& buffer : layer->buffers()) all.push_back(buffer.data_ptr());
    }
    return all;
  }
  void remember_weights() {
    weights_ = addresses();
    for (const auto& parameter : trained_parameters()) reserved_.push_back(torch::empty_like(parameter));
  }
  bool weights_moved() const { return addresses() != weights_; }

  const std::vector<std::shared_ptr<Layer>>& layers_;
  torch::Device device_;
  RunLayers run_;
  std::vector<DeferredBatchNorm*> norms_;
  at::cuda::MempoolId_t pool_;
  std::vector<Action> order_;
  int warm_ = 0;           // steps in this order so far
  bool captured_ = false;  // something was recorded
  bool replays_ = false;   // this step replays
  bool records_ = false;   // this step records
  std::map<int, Slot> slots_;
  std::vector<const void*> weights_;  // their addresses
  Tensors reserved_;                  // by trained parameter: the memory for its gradient
  Tensors parameters_, sums_;         // only parameters with a gradient
  std::string refusal_;
};

}  // namespace

std::unique_ptr<StageGraphs> make_stage_graphs(const std::vector<std::shared_ptr<Layer>>& layers, torch::Device device,
                                               StageGraphs::RunLayers run) {
  if (!device.is_cuda()) return nullptr;
  return std::make_unique<CudaStageGraphs>(layers, device, std::move(run));
}

}  // namespace epipe::pipeline
