// The place of a stage's output in autograd's graph.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "module.h"

namespace py = pybind11;

namespace epipe::python {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Calls a Python function with the gradient of the output, and passes its result on.
//
// Of the nodes that are ready, autograd runs the one with the highest number, and gives later ones higher numbers. This one has the highest
// of all: the gradient leaves as soon as it is there, before the heads of other micro-batches and before anything waits for an answer.
class OutputBackward final : public Node {
 public:
  explicit OutputBackward(py::function send) : Node(std::numeric_limits<std::uint64_t>::max()), send_(std::move(send)) {}
  ~OutputBackward() override {
    const py::gil_scoped_acquire locked;
    send_ = py::function();
  }
  OutputBackward(const OutputBackward&) = delete;
  OutputBackward& operator=(const OutputBackward&) = delete;

  variable_list apply(variable_list&& gradients) override {
    const torch::Tensor gradient = gradients[0].defined() ? gradients[0] : input_metadata(0).zeros_like();
    const py::gil_scoped_acquire locked;
    try {
      return {send_(gradient).cast<torch::Tensor>()};
    } catch (py::error_already_set& error) {  // which autograd would turn into a RuntimeError
      error.restore();
      python_error same;
      same.persist();
      throw same;
    }
  }
  std::string name() const override { return "RemoteStageBackward"; }

 private:
  py::function send_;
};

using NodePtr = decltype(torch::autograd::Edge::function);  // a shared_ptr; PyTorch 2.15: an intrusive_ptr

template <typename SomeNode>
NodePtr make_node(py::function send) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return NodePtr(new SomeNode(std::move(send)), [](auto* node) { deleteNode(node); });  // against deep recursion
  } else {
    return c10::make_intrusive<SomeNode>(std::move(send));
  }
}

// y, whose backward is `send`; what that returns is the gradient of `before`.
torch::Tensor with_gradient_sender(torch::Tensor y, const torch::Tensor& before, py::function send) {
  const NodePtr node = make_node<OutputBackward>(std::move(send));
  node->set_next_edges(torch::autograd::collect_next_edges(before));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace

void add_output_node(py::module_& module) {
  module.def("with_gradient_sender", &with_gradient_sender, py::arg("y"), py::arg("before"), py::arg("send"));
}

}  // namespace epipe::python
