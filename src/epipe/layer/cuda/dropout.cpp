#include "epipe/layer/cuda/dropout.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "epipe/layer/cuda/drop.h"

namespace epipe::layer::cuda {
namespace {

// How a kernel sees a type, and a number of that type.
struct Typed {
  Element element;
  float kept;
};
Typed typed(torch::ScalarType type, float kept) {
  switch (type) {
    case torch::kFloat32: return {Element::kFloat, kept};
    case torch::kFloat16: return {Element::kHalf, static_cast<c10::Half>(kept)};
    case torch::kBFloat16: return {Element::kBFloat16, static_cast<c10::BFloat16>(kept)};
    default: throw std::invalid_argument(std::string("dropout expects float32, float16 or bfloat16, got ") + c10::toString(type));
  }
}

// On the host, or on the device.
using HostKeys = std::vector<std::uint64_t>;

void drop_with(const HostKeys& keys, const torch::Tensor& from, torch::Tensor& to, float p, float kept, kernels::cuda::Stream stream) {
  const auto values = static_cast<std::size_t>(from.numel()) / std::max<std::size_t>(1, keys.size());
  const Typed as = typed(from.scalar_type(), kept);
  drop(from.data_ptr(), to.data_ptr(), as.element, std::span<const std::uint64_t>(keys), values, p, as.kept, stream);
}

void drop_with(const torch::Tensor& keys, const torch::Tensor& from, torch::Tensor& to, float p, float kept, kernels::cuda::Stream stream) {
  const auto samples = static_cast<std::size_t>(keys.numel());
  const auto values = static_cast<std::size_t>(from.numel()) / std::max<std::size_t>(1, samples);
  const Typed as = typed(from.scalar_type(), kept);
  const auto* const at = reinterpret_cast<const std::uint64_t*>(keys.data_ptr<std::int64_t>());
  drop(from.data_ptr(), to.data_ptr(), as.element, at, samples, values, p, as.kept, stream);
}

template <typename SomeKeys>
torch::Tensor dropped(const torch::Tensor& x, const SomeKeys& keys, float p, float kept) {
  const c10::cuda::CUDAGuard device(x.device());
  const auto from = x.contiguous();
  auto to = torch::empty_like(from);
  drop_with(keys, from, to, p, kept, c10::cuda::getCurrentCUDAStream(x.device().index()).stream());
  return to;
}

// The backward draws the same numbers again. A hand-written node: a Function<> boxes its saved values, and a model runs dozens per step.
template <typename SomeKeys>
class DropoutBackward final : public torch::autograd::Node {
 public:
  DropoutBackward(SomeKeys keys, float p, float kept) : keys_(std::move(keys)), p_(p), kept_(kept) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? dropped(gradients[0], keys_, p_, kept_) : torch::Tensor()};
  }
  std::string name() const override { return "DropoutBackward"; }

 private:
  SomeKeys keys_;
  float p_;
  float kept_;
};

using NodePtr = decltype(torch::autograd::Edge::function);  // a shared_ptr; PyTorch 2.15: an intrusive_ptr

template <typename SomeNode, typename... Arguments>
NodePtr make_node(const Arguments&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return NodePtr(new SomeNode(arguments...), [](auto* node) { deleteNode(node); });  // which newer ones no longer have
  } else {
    return c10::make_intrusive<SomeNode>(arguments...);
  }
}

template <typename SomeKeys>
torch::Tensor dropout_by(const torch::Tensor& x, const SomeKeys& keys, float p, float kept) {
  torch::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView without_graph;
    y = dropped(x, keys, p, kept);
  }
  if (torch::GradMode::is_enabled() && x.requires_grad()) {
    const NodePtr node = make_node<DropoutBackward<SomeKeys>>(keys, p, kept);
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    torch::autograd::set_history(y, node);
  }
  return y;
}

}  // namespace

torch::Tensor dropout(const torch::Tensor& x, std::span<const std::uint64_t> keys, float p, float kept) {
  return dropout_by(x, HostKeys(keys.begin(), keys.end()), p, kept);
}

torch::Tensor dropout(const torch::Tensor& x, const torch::Tensor& keys, float p, float kept) { return dropout_by(x, keys, p, kept); }

}  // namespace epipe::layer::cuda
