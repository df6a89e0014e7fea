// torchscript:FILE, an nn.Sequential that Python scripted or traced and saved: every child is a layer.
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/serialization/import.h>

#include <stdexcept>

#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

// The parameters and buffers of a scripted module under the same names: the same tensors, so whoever changes one changes both.
void mirror(const torch::jit::Module& from, torch::nn::Module& to) {
  for (const auto& item : from.named_parameters(/*recurse=*/false))
    to.register_parameter(item.name, item.value, item.value.requires_grad());
  for (const auto& item : from.named_buffers(/*recurse=*/false)) to.register_buffer(item.name, item.value);
  for (const auto& item : from.named_children()) {
    mirror(item.value, *to.register_module(item.name, std::make_shared<torch::nn::Module>()));
  }
}

std::string inlined_code(const torch::jit::Module& module) {
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return graph->toString();
}

class ScriptLayer final : public layer::Layer {
 public:
  ScriptLayer(const std::string& name, const torch::jit::Module& module) : Layer(name), module_(module) {
    mirror(module_, *this);
    const std::string code = inlined_code(module_);
    drops_ = code.find("dropout") != std::string::npos;
    normalizes_ = code.find("batch_norm") != std::string::npos;
  }

  // The inputs, then as many side inputs as its forward has arguments left.
  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    if (at.recompute && (drops_ || normalizes_)) {
      throw std::runtime_error(fmt::format(
          "layer {} came as TorchScript with dropout or BatchNorm, which cannot be run twice alike; do without --recompute", name()));
    }
    module_.train(at.training);
    const auto arguments = module_.get_method("forward").function().getSchema().arguments().size() - 1;  // without self
    std::vector<c10::IValue> values(in.begin(), in.end());
    for (std::size_t i = 0; i < at.side.size() && values.size() < arguments; ++i) values.emplace_back(at.side[i]);
    return tensors(module_.forward(std::move(values)));
  }
  // Every weight once per position of the output: exact for a linear layer or a convolution, an estimate for several in one child.
  double flops(const Tensors&, const Tensors& out) const override {
    double weights = 0;
    for (const auto& parameter : parameters()) weights += static_cast<double>(parameter.numel());
    const auto& y = out[0];
    const auto places = y.dim() == 4 ? y.numel() / y.size(1) : y.numel() / std::max<std::int64_t>(1, y.size(-1));
    return 2 * weights * static_cast<double>(places) + static_cast<double>(y.numel());
  }
  void initialize(std::uint64_t) override {}  // the file has its weights

  bool drops() const { return drops_; }
  bool normalizes() const { return normalizes_; }

 private:
  Tensors tensors(const c10::IValue& value) const {
    if (value.isTensor()) return {value.toTensor()};
    if (value.isTensorList()) return value.toTensorVector();
    if (!value.isTuple()) throw std::runtime_error(fmt::format("expected layer {} to return tensors", name()));
    Tensors all;
    for (const auto& element : value.toTupleRef().elements()) all.push_back(element.toTensor());
    return all;
  }

  torch::jit::Module module_;
  bool drops_ = false;
  bool normalizes_ = false;
};

torch::jit::Module load(const std::string& file) {
  try {
    return torch::jit::load(file, torch::kCPU);
  } catch (const c10::Error& error) {
    throw std::invalid_argument(fmt::format("{} is no TorchScript file: {}", file, error.what_without_backtrace()));
  }
}

}  // namespace

Layers make_torchscript(const data::DataSpec&, const std::string& argument) {
  const auto whole = load(argument);
  Layers layers;
  for (const auto& child : whole.named_children()) layers.push_back(std::make_shared<ScriptLayer>(child.name, child.value));
  if (layers.empty()) {
    throw std::invalid_argument(fmt::format("{} has no children to cut between; save torch.jit.script(nn.Sequential(...))", argument));
  }
  return layers;
}

std::vector<std::string> torchscript_notes(const Layers& layers) {
  bool drops = false;
  bool normalizes = false;
  for (const auto& layer : layers) {
    const auto* const script = dynamic_cast<const ScriptLayer*>(layer.get());
    drops = drops || (script != nullptr && script->drops());
    normalizes = normalizes || (script != nullptr && script->normalizes());
  }
  std::vector<std::string> notes;
  if (drops) notes.emplace_back("dropout in TorchScript is not keyed by sample: runs with other cuts, chunks or a resume draw other masks");
  if (normalizes) notes.emplace_back("BatchNorm in TorchScript updates its running statistics with every micro-batch, not once per batch");
  return notes;
}

}  // namespace epipe::model
