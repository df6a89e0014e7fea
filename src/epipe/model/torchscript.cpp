// torchscript:FILE, a module scripted or traced and saved by Python. The children of an nn.Sequential become layers; any other module is
// one layer, whose own forward is called.
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/serialization/import.h>

#include <set>
#include <stdexcept>

#include "epipe/model/torchscript_chain.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

// Registers the parameters and buffers of a scripted module, the same tensors, under the same names. A tensor shared by two modules is
// registered once, under its first name.
class Mirror {
 public:
  void fill(const torch::jit::Module& from, torch::nn::Module& to) {
    for (const auto& item : from.named_parameters(/*recurse=*/false)) {
      if (is_new(item.value)) to.register_parameter(item.name, item.value, item.value.requires_grad());
    }
    for (const auto& item : from.named_buffers(/*recurse=*/false)) {
      if (is_new(item.value)) to.register_buffer(item.name, item.value);
    }
    for (const auto& item : from.named_children()) {
      fill(item.value, *to.register_module(item.name, std::make_shared<torch::nn::Module>()));
    }
  }

 private:
  bool is_new(const torch::Tensor& tensor) { return seen_.insert(tensor.unsafeGetTensorImpl()).second; }

  std::set<const void*> seen_;
};

std::shared_ptr<torch::jit::Graph> inlined_graph(const torch::jit::Module& module) {
  auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return graph;
}

// Whether the mode of a dropout or BatchNorm, training or evaluation, is fixed in the graph: traced, or scripted that way.
bool has_fixed_mode(torch::jit::Graph& graph) {
  for (const auto& [kind, flag] : {std::pair(c10::aten::dropout, c10::attr::train), {c10::aten::batch_norm, c10::attr::training}}) {
    for (const auto* const node : torch::jit::findAllNodes(graph, kind, /*recurse=*/true)) {
      if (node->namedInput(flag)->node()->kind() == c10::prim::Constant) return true;
    }
  }
  return false;
}

// Where a module differs from epipe's own layers.
struct Traits {
  bool drops = false;
  bool normalizes = false;
  bool mode_is_fixed = false;
};

Traits read_traits(const torch::jit::Module& module) {
  const auto graph = inlined_graph(module);
  const std::string code = graph->toString();
  return {code.find("dropout") != std::string::npos, code.find("batch_norm") != std::string::npos, has_fixed_mode(*graph)};
}

std::vector<std::string> notes_of(const Traits& traits) {
  std::vector<std::string> notes;
  const auto note = [&](bool applies, const char* text) {
    if (applies) notes.emplace_back(text);
  };
  note(traits.drops, "dropout in TorchScript is not keyed by sample: runs with other cuts, chunks or a resume draw other masks");
  note(traits.normalizes, "BatchNorm in TorchScript updates its running statistics with every micro-batch, not once per batch");
  note(traits.mode_is_fixed,
       "dropout or BatchNorm in this TorchScript file, which was probably traced, stays in the mode it was saved in, training or "
       "evaluation; save torch.jit.script(...) for one that follows the run");
  return notes;
}

class ScriptLayer final : public layer::Layer {
 public:
  // A child that takes the output of the child before it.
  explicit ScriptLayer(const ScriptChild& child) : Layer(child.name), module_(child.module), traits_(read_traits(child.module)) {
    Mirror().fill(module_, *this);
  }
  // A module whose children do not become layers. It takes side inputs, too.
  explicit ScriptLayer(const torch::jit::Module& whole)
      : Layer("module", ""), module_(whole), takes_side_inputs_(true), traits_(read_traits(whole)) {
    Mirror().fill(module_, *this);
  }

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    if (at.recompute && (traits_.drops || traits_.normalizes)) {
      throw std::runtime_error(fmt::format(
          "layer {} came as TorchScript with dropout or BatchNorm, which cannot be run twice alike; do without --recompute", name()));
    }
    layer::refuse_capture(at, name(), "is TorchScript");
    module_.train(at.training);
    return tensors(module_(arguments(in, at)));
  }
  // Each weight counts once per output position: exact for a linear layer or a convolution, an estimate for several in one child.
  double flops(const Tensors&, const Tensors& out) const override {
    double weights = 0;
    for (const auto& parameter : parameters()) weights += static_cast<double>(parameter.numel());
    const auto& y = out[0];
    const auto places = y.dim() == 4 ? y.numel() / y.size(1) : y.numel() / std::max<std::int64_t>(1, y.size(-1));
    return 2 * weights * static_cast<double>(places) + static_cast<double>(y.numel());
  }
  void initialize(std::uint64_t) override {}  // the file has its weights

 private:
  // A tuple or a list of tensors is passed on as such. A whole module gets as many side inputs as its forward takes tensors after the
  // first; a child gets none, because within a Sequential only its input reaches it.
  std::vector<c10::IValue> arguments(const Tensors& in, const ForwardContext& at) const {
    const auto& formal = module_.get_method("forward").function().getSchema().arguments();  // self first
    if (formal.size() < 2) throw std::runtime_error(fmt::format("expected the forward of layer {} to take an input", name()));
    const auto& type = formal[1].type();
    std::vector<c10::IValue> values;
    if (type->kind() == c10::TypeKind::TupleType) {
      values.emplace_back(c10::ivalue::Tuple::createNamed(std::vector<c10::IValue>(in.begin(), in.end()), type->cast<c10::TupleType>()));
    } else if (type->kind() == c10::TypeKind::ListType) {
      values.emplace_back(c10::List<torch::Tensor>(in));
    } else {
      values.emplace_back(in.at(0));
    }
    if (!takes_side_inputs_) return values;
    for (std::size_t i = 0; i < at.side.size() && i + 2 < formal.size(); ++i) {
      if (!c10::TensorType::get()->isSubtypeOf(*formal[i + 2].type())) break;
      values.emplace_back(at.side[i]);
    }
    return values;
  }

  Tensors tensors(const c10::IValue& value) const {
    if (value.isTensor()) return {value.toTensor()};
    if (value.isTensorList()) return value.toTensorVector();
    if (!value.isTuple()) throw std::runtime_error(fmt::format("expected layer {} to return tensors", name()));
    Tensors all;
    for (const auto& element : value.toTupleRef().elements()) all.push_back(element.toTensor());
    return all;
  }

  torch::jit::Module module_;
  bool takes_side_inputs_ = false;
  Traits traits_;
};

// Loads from a stream or a path.
template <typename From>
torch::jit::Module load(From& from, const std::string& what) {
  try {
    return torch::jit::load(from, torch::kCPU);
  } catch (const c10::Error& error) {
    throw std::invalid_argument(fmt::format("{} is not a TorchScript file: {}", what, error.what_without_backtrace()));
  }
}

// Returns the existing layer, which holds the loaded tensors.
LayerMaker existing(const std::shared_ptr<ScriptLayer>& layer) {
  return {layer->name(), [layer] { return layer; }};
}

Architecture architecture_of(const torch::jit::Module& whole, const std::string& what) {
  if (!whole.find_method("forward")) throw std::invalid_argument(fmt::format("expected {} to have a forward, got none", what));
  const auto chain = chain_of(whole);
  Architecture architecture;
  if (chain && chain.value().size() >= 2) {
    for (const ScriptChild& child : chain.value()) architecture.layers.push_back(existing(std::make_shared<ScriptLayer>(child)));
  } else {
    architecture.single_layer_reason = chain ? "it has no two children to cut between" : chain.error().message;
    architecture.layers.push_back(existing(std::make_shared<ScriptLayer>(whole)));
  }
  architecture.notes = notes_of(read_traits(whole));
  return architecture;
}

}  // namespace

Architecture make_torchscript(const data::DataSpec&, const std::string& argument) {
  return architecture_of(load(argument, argument), argument);
}

Architecture read_torchscript(std::istream& in, const std::string& what) { return architecture_of(load(in, what), what); }

}  // namespace epipe::model
