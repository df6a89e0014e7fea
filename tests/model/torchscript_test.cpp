// torchscript:FILE computes what TorchScript computes: a chain of children is its layers, any other module is one.
#include <gtest/gtest.h>

#include "epipe/model/costs.h"
#include "support/model_run.h"
#include "support/script_modules.h"
#include "support/temp_folder.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;
using torch::jit::Module;

const data::DataSpec kData{data::DataSpec::Kind::kImages, {6}, 3};

layer::Batch batch_of(std::int64_t size) {
  torch::manual_seed(1);
  layer::Batch batch;
  batch.inputs = {torch::randn({size, 6})};
  return batch;
}

class ScriptModule : public ::testing::Test {
 protected:
  Model saved(const Module& module, std::int64_t classes = 3) const {
    module.save(folder_.file("m.pt"));
    auto data = kData;
    data.classes = classes;
    return make_model("torchscript:" + folder_.file("m.pt"), data, 1);
  }
  // Of what was saved last.
  Architecture architecture() const { return architecture_of("torchscript:" + folder_.file("m.pt"), kData); }
  static std::vector<std::string> names(const Model& model) {
    std::vector<std::string> all;
    for (const auto& layer : model.layers) all.push_back(layer->name());
    return all;
  }
  // Outputs and every gradient.
  static void expect_same(const Model& model, Module module, const std::string& what) {
    const auto batch = batch_of(4);
    const auto expected = module.forward({batch.inputs[0]}).toTensor();
    const auto y = forward(model, batch, true);
    EXPECT_TRUE(torch::equal(y, expected)) << what;
    y.square().sum().backward();
    expected.square().sum().backward();
    const auto own = tensors_by_name(model);
    std::size_t compared = 0;
    for (const auto& item : module.named_parameters()) {
      ASSERT_TRUE(own.contains(item.name)) << what << ": " << item.name;
      const auto gradient = own.at(item.name).grad();
      ASSERT_EQ(gradient.defined(), item.value.grad().defined()) << what << ": " << item.name;
      EXPECT_TRUE(!gradient.defined() || torch::equal(gradient, item.value.grad())) << what << ": " << item.name;
      ++compared;
    }
    EXPECT_EQ(own.size(), compared) << what;
  }
  static std::map<std::string, torch::Tensor> tensors_by_name(const Model& model) {
    std::map<std::string, torch::Tensor> all;
    for (const auto& layer : model.layers) {
      for (const auto& item : layer->named_parameters()) all[layer->full_name(item.key())] = item.value();
    }
    return all;
  }
  std::string refusal() const {
    try {
      resolve_cut("1", architecture());
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
};

TEST_F(ScriptModule, AChainOfChildrenIsItsLayersInTheOrderOfTheCalls) {
  const Module chain = script_module(kChain);
  EXPECT_EQ(names(saved(chain)), (std::vector<std::string>{"a", "b", "c"}));
  expect_same(saved(chain), chain, "a, b, c");
  Module turned("Net");
  turned.register_module("last", script_linear(8, 3));
  turned.register_module("first", script_linear(6, 8));
  turned.define("def forward(self, x):\n  return self.last.forward(self.first.forward(x))\n");
  EXPECT_EQ(names(saved(turned)), (std::vector<std::string>{"first", "last"}));
  expect_same(saved(turned), turned, "children in another order than their calls");
  EXPECT_EQ((saved(chain), resolve_cut("b", architecture())), 1U);
}

TEST_F(ScriptModule, AModuleWithAForwardOfItsOwnIsOneLayer) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {kOwnForward, "aten::relu"},
      {"return self.c.forward(self.b.forward(self.a.forward(x))) * 100", "aten::mul between its children"},
      {"return self.c.forward(self.b.forward(self.b.forward(self.a.forward(x))))", "calls b again"},
      {"y = self.a.forward(x)\n  return self.c.forward(y + self.b.forward(y))", "aten::add"},
      {"y = self.a.forward(x)\n  z = self.b.forward(y)\n  return self.c.forward(y)", "something else than the output of the child before"},
      {"return self.c.forward(self.a.forward(x))", "weights outside the children"},
      {"y = self.b.forward(self.a.forward(x))\n  if bool(y.sum() > 0):\n    y = -y\n  return self.c.forward(y)", "between its children"},
      {"y = self.a.forward(x)\n  z = self.c.forward(self.b.forward(y))\n  return torch.sum(y, [1], True) + z", "between its children"},
      {"return torch.linear(self.b.forward(self.a.forward(x)), self.c.weight, self.c.bias)", "between its children"},
  };
  for (const auto& [source, reason] : cases) {
    const Module module = script_module(source);
    const Model model = saved(module);
    ASSERT_EQ(model.layers.size(), 1U) << source;
    expect_same(model, module, source);
    EXPECT_NE(refusal().find("is one layer and cannot be cut"), std::string::npos) << source;
    EXPECT_NE(refusal().find(reason), std::string::npos) << source << ": " << refusal();
    EXPECT_THROW(balanced_cuts(architecture(), batch_of(1).inputs, context_of(batch_of(1), false), 2), std::invalid_argument) << source;
    EXPECT_TRUE(balanced_cuts(architecture(), batch_of(1).inputs, context_of(batch_of(1), false), 1).empty()) << source;
  }
}

TEST_F(ScriptModule, AnOutputThatIsNotTheLastChildsIsOneLayer) {
  const Module module = script_module("y = self.a.forward(x)\n  self.c.forward(self.b.forward(y))\n  return y", 3);
  const Model model = saved(module, 8);
  ASSERT_EQ(model.layers.size(), 1U);
  expect_same(model, module, "the output of a");
}

TEST_F(ScriptModule, AModuleAroundASequentialHasItsLayers) {
  const auto sequential = [] {
    Module inner("Sequential");
    inner.register_module("0", script_linear(6, 8));
    inner.register_module("1", script_linear(8, 3));
    inner.define("def forward(self, x):\n  return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
    return inner;
  };
  Module outer("Net");
  outer.register_module("net", sequential());
  outer.define("def forward(self, x):\n  return self.net.forward(x)\n");
  EXPECT_EQ(names(saved(outer)), (std::vector<std::string>{"net.0", "net.1"}));
  expect_same(saved(outer), outer, "net");
  Module nested("Sequential");
  nested.register_module("0", sequential());
  nested.register_module("1", script_linear(3, 3));
  nested.define("def forward(self, x):\n  return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
  EXPECT_EQ(names(saved(nested)), (std::vector<std::string>{"0", "1"})) << "a Sequential in a Sequential is one of its layers";
  expect_same(saved(nested), nested, "nested");
}

// As an nn.ModuleList is looped over.
TEST_F(ScriptModule, ChildrenOfAListAreLayers) {
  Module list("ModuleList");
  list.register_module("0", script_linear(6, 8));
  list.register_module("1", script_linear(8, 3));
  Module net("Net");
  net.register_module("layers", list);
  net.define("def forward(self, x):\n  return getattr(self.layers, \"1\").forward(getattr(self.layers, \"0\").forward(x))\n");
  EXPECT_EQ(names(saved(net)), (std::vector<std::string>{"layers.0", "layers.1"}));
  expect_same(saved(net), net, "a list");
}

TEST_F(ScriptModule, ChildrenThatShareWeightsAreOneLayerThatHasThemOnce) {
  const Module shared = script_linear(6, 6);
  Module net("Sequential");
  net.register_module("0", shared);
  net.register_module("1", shared);
  net.define("def forward(self, x):\n  return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
  const Model model = saved(net, 6);
  ASSERT_EQ(model.layers.size(), 1U);
  EXPECT_EQ(model.layers[0]->parameters().size(), 2U) << "an optimizer must not see a weight twice";
  EXPECT_NE(refusal().find("again"), std::string::npos) << refusal();
}

TEST_F(ScriptModule, TuplesGoFromChildToChildAsTheyAre) {
  Module two("Two");
  two.define("def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:\n  return (x, x * 2)\n");
  Module sum("Sum");
  sum.define("def forward(self, xs: Tuple[Tensor, Tensor]) -> Tensor:\n  return xs[0] - 3 * xs[1]\n");
  Module net("Sequential");
  net.register_module("0", two);
  net.register_module("1", sum);
  net.define("def forward(self, x):\n  return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
  const Model model = saved(net, 6);
  ASSERT_EQ(model.layers.size(), 2U);
  const auto batch = batch_of(2);
  EXPECT_TRUE(torch::equal(forward(model, batch, false), net.forward({batch.inputs[0]}).toTensor()));
}

TEST_F(ScriptModule, WhatNoCutCanCarryKeepsAModuleWhole) {
  Module number("Number");
  number.define("def forward(self, x: Tensor) -> Tuple[Tensor, int]:\n  return (x, x.size(0))\n");
  Module scale("Scale");
  scale.define("def forward(self, xs: Tuple[Tensor, int]) -> Tensor:\n  return xs[0] * xs[1]\n");
  Module net("Sequential");
  net.register_module("0", number);
  net.register_module("1", scale);
  net.define("def forward(self, x):\n  return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
  const Model model = saved(net, 6);
  ASSERT_EQ(model.layers.size(), 1U);
  EXPECT_NE(refusal().find("a cut carries only tensors"), std::string::npos) << refusal();
  const auto batch = batch_of(2);
  EXPECT_TRUE(torch::equal(forward(model, batch, false), net.forward({batch.inputs[0]}).toTensor()));
}

TEST_F(ScriptModule, AWholeModuleTakesTheMaskWhereItHasATensorForIt) {
  Module net("Net");
  net.define("def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:\n  return x if mask is None else x * mask\n");
  const Model model = saved(net, 6);
  auto batch = batch_of(2);
  EXPECT_TRUE(torch::equal(forward(model, batch, false), batch.inputs[0]));
  batch.side = {torch::full({2, 6}, 3.0F)};
  EXPECT_TRUE(torch::equal(forward(model, batch, false), 3 * batch.inputs[0]));
  Module other("Net");
  other.define("def forward(self, x: Tensor, flag: bool = False) -> Tensor:\n  return -x if flag else x\n");
  EXPECT_TRUE(torch::equal(forward(saved(other, 6), batch, false), batch.inputs[0]));
}

TEST_F(ScriptModule, SaysThatAFixedModeStays) {
  Module fixed("Net");
  fixed.define("def forward(self, x):\n  return torch.dropout(x, 0.5, True)\n");
  saved(fixed, 6);
  const auto notes = architecture().notes;
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[1].find("stays in the mode it was saved in"), std::string::npos) << notes[1];
  Module follows("Net");
  follows.register_attribute("training", c10::BoolType::get(), true);
  follows.define("def forward(self, x):\n  return torch.dropout(x, 0.5, self.training)\n");
  saved(follows, 6);
  EXPECT_EQ(architecture().notes.size(), 1U);
}

TEST_F(ScriptModule, AFileWithoutAForwardIsRefused) {
  Module none("Net");
  none.register_module("a", script_linear(6, 3));
  EXPECT_THROW(saved(none), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::model
