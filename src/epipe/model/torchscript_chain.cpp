#include "epipe/model/torchscript_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace epipe::model {
namespace {

using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

Error not_a_chain(const std::string& what) { return {ErrorCode::kBadFile, what}; }

// Whether a cut can carry it.
bool holds_only_tensors(const c10::Type& type) {
  const auto is_tensor = [](const c10::TypePtr& element) { return element->kind() == c10::TypeKind::TensorType; };
  if (type.kind() == c10::TypeKind::TensorType) return true;
  if (type.kind() != c10::TypeKind::ListType && type.kind() != c10::TypeKind::TupleType) return false;
  const auto elements = type.containedTypes();
  return !elements.empty() && std::all_of(elements.begin(), elements.end(), is_tensor);
}

std::vector<torch::Tensor> parameters_and_buffers(const Module& module) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : module.parameters()) all.push_back(parameter);
  for (const auto& buffer : module.buffers()) all.push_back(buffer);
  return all;
}

bool has_hooks(const Module& module) { return !module.type()->getForwardHooks().empty() || !module.type()->getForwardPreHooks().empty(); }

// Reads the graph of one forward, node by node.
class ForwardReader {
 public:
  ForwardReader(const Module& module, const torch::jit::Graph& graph) : x_(graph.inputs()[1]) {
    modules_[graph.inputs()[0]] = {"", module};
  }

  Result<void> read(const Node& node) {
    if (node.kind() == prim::Constant) return {};  // its users are checked
    if (node.kind() == prim::GetAttr && modules_.contains(node.input())) {
      read_attribute(node, modules_.at(node.input()));
      return {};
    }
    if (node.kind() == prim::CallMethod && node.s(c10::attr::name) == "forward" && modules_.contains(node.inputs()[0])) {
      return read_call(node, modules_.at(node.inputs()[0]));
    }
    return not_a_chain(fmt::format("its forward has {} between its children", node.kind().toQualString()));
  }

  const Value* result() const { return x_; }
  bool owns(const torch::Tensor& tensor) const { return owners_.contains(tensor.unsafeGetTensorImpl()); }
  std::vector<ScriptChild> children() && { return std::move(children_); }

 private:
  // Attributes other than modules need no check: only nodes that are refused could use them.
  void read_attribute(const Node& node, const ScriptChild& of) {
    const std::string& name = node.s(c10::attr::name);
    const c10::IValue value = of.module.attr(name);
    if (value.isModule()) modules_[node.output()] = {of.name.empty() ? name : of.name + "." + name, value.toModule()};
  }

  Result<void> read_call(const Node& node, const ScriptChild& child) {
    const auto tensors = parameters_and_buffers(child.module);
    if (node.inputs().size() == 1 && !node.output()->hasUses() && tensors.empty()) return {};  // a traced nn.Identity
    if (node.inputs().size() != 2 || node.inputs()[1] != x_) {
      return not_a_chain(fmt::format("its forward gives {} something else than the output of the child before it", child.name));
    }
    if (!called_.insert(child.module._ivalue().get()).second) return not_a_chain(fmt::format("its forward calls {} again", child.name));
    for (const auto& tensor : tensors) {
      const std::string& owner = owners_.emplace(tensor.unsafeGetTensorImpl(), child.name).first->second;
      if (owner != child.name) return not_a_chain(fmt::format("{} and {} share weights", owner, child.name));
    }
    const auto& taken = child.module.get_method("forward").function().getSchema().arguments().at(1).type();
    if (!holds_only_tensors(*x_->type()) || taken->kind() != x_->type()->kind()) {
      return not_a_chain(fmt::format("{} takes {}, and a cut carries only tensors", child.name, x_->type()->annotation_str()));
    }
    children_.push_back(child);
    x_ = node.output();
    return {};
  }

  const Value* x_;  // the input the next child must take
  std::map<const Value*, ScriptChild> modules_;
  std::set<const void*> called_;
  std::map<const void*, std::string> owners_;  // the child that owns a parameter or buffer
  std::vector<ScriptChild> children_;
};

// Does not look into the children.
Result<std::vector<ScriptChild>> direct_chain(const Module& module) {
  if (has_hooks(module)) return not_a_chain("it has hooks");
  const auto graph = module.get_method("forward").graph();
  if (graph->inputs().size() != 2) return not_a_chain(fmt::format("its forward takes {} inputs", graph->inputs().size() - 1));
  ForwardReader reader(module, *graph);
  for (const Node* const node : graph->nodes()) EPIPE_TRY(reader.read(*node));
  if (graph->outputs().size() != 1 || graph->outputs()[0] != reader.result()) {
    return not_a_chain("its forward returns something else than the output of its last child");
  }
  for (const auto& tensor : parameters_and_buffers(module)) {
    if (!reader.owns(tensor)) return not_a_chain("it has weights outside the children that its forward calls");
  }
  return std::move(reader).children();
}

}  // namespace

Result<std::vector<ScriptChild>> chain_of(const Module& module) {
  auto chain = direct_chain(module);
  if (!chain || chain.value().size() != 1) return chain;
  const ScriptChild only = chain.value()[0];
  auto below = chain_of(only.module);
  if (!below) return not_a_chain(fmt::format("it only calls {}: {}", only.name, below.error().message));
  if (below.value().empty()) return chain;
  for (ScriptChild& child : below.value()) child.name = only.name + "." + child.name;
  return below;
}

}  // namespace epipe::model
