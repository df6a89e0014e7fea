// A backward in two parts gives what one backward gives, bit for bit.
#include "epipe/pipeline/split_backward.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

namespace epipe::pipeline {
namespace {

// A graph of one's own: outputs made of inputs and weights.
struct Graph {
  Tensors inputs;   // leaves
  Tensors weights;  // leaves
  std::function<Tensors(const Tensors& inputs, const Tensors& weights)> run;
};

Tensors leaves(const std::vector<std::vector<std::int64_t>>& shapes, bool requires_grad = true) {
  Tensors all;
  for (const auto& shape : shapes) all.push_back(torch::randn(shape).requires_grad_(requires_grad));
  return all;
}

Tensors seeds_for(const Tensors& outputs) {
  torch::manual_seed(2);
  Tensors seeds;
  for (const auto& output : outputs) seeds.push_back(torch::randn(output.sizes()));
  return seeds;
}

struct Gradients {
  Tensors inputs;
  Tensors weights;
};

Gradients gradients_of(const Graph& graph) {
  Gradients found;
  for (const auto& input : graph.inputs) found.inputs.push_back(input.grad().defined() ? input.grad().clone() : torch::Tensor());
  for (const auto& weight : graph.weights) found.weights.push_back(weight.grad().defined() ? weight.grad().clone() : torch::Tensor());
  return found;
}

void clear_gradients(const Graph& graph) {
  for (auto tensors : {graph.inputs, graph.weights}) {
    for (auto& tensor : tensors) tensor.mutable_grad() = torch::Tensor();
  }
}

// Two micro-batches, so that gradients are added to those of before.
Gradients whole(const Graph& graph) {
  clear_gradients(graph);
  for (int i = 0; i < 2; ++i) {
    for (auto input : graph.inputs) input.mutable_grad() = torch::Tensor();
    const Tensors outputs = graph.run(graph.inputs, graph.weights);
    torch::autograd::backward(outputs, seeds_for(outputs));
  }
  return gradients_of(graph);
}

Gradients in_two_parts(const Graph& graph) {
  clear_gradients(graph);
  std::array<SplitBackward, 2> splits;
  Tensors of_inputs;
  for (SplitBackward& split : splits) {
    const Tensors outputs = graph.run(graph.inputs, graph.weights);
    of_inputs = split.run_inputs(outputs, seeds_for(outputs), graph.inputs);
  }
  for (const auto& weight : graph.weights) EXPECT_FALSE(weight.grad().defined()) << "the first part touches no weight";
  for (SplitBackward& split : splits) split.run_weights();
  Gradients found = gradients_of(graph);
  for (const auto& input : found.inputs) EXPECT_FALSE(input.defined()) << "gradients of inputs are given, not added";
  found.inputs = of_inputs;
  return found;
}

void expect_same(const Tensors& expected, const Tensors& actual, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) {
    ASSERT_EQ(actual[k].defined(), expected[k].defined()) << what << " " << k;
    if (!expected[k].defined()) continue;
    EXPECT_TRUE(torch::equal(actual[k], expected[k])) << what << " " << k;
    EXPECT_EQ(actual[k].strides(), expected[k].strides()) << what << " " << k;
  }
}

void expect_equal_parts(const Graph& graph) {
  const Gradients expected = whole(graph);
  const Gradients actual = in_two_parts(graph);
  expect_same(expected.inputs, actual.inputs, "input");
  expect_same(expected.weights, actual.weights, "weight");
}

TEST(SplitBackward, OfAPerceptron) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}), leaves({{6, 4}, {6}, {3, 6}}), [](const Tensors& x, const Tensors& w) -> Tensors {
                        return {torch::linear(torch::relu(torch::linear(x[0], w[0], w[1])), w[2])};
                      }});
}

TEST(SplitBackward, OfConvolutionAndBatchNorm) {
  torch::manual_seed(1);
  expect_equal_parts(
      {leaves({{4, 3, 6, 6}}), leaves({{8, 3, 3, 3}, {8}, {8}, {8, 1, 3, 3}}), [](const Tensors& x, const Tensors& w) -> Tensors {
         auto y = torch::conv2d(x[0], w[0], {}, 1, 1);
         y = torch::batch_norm(y, w[1], w[2], {}, {}, true, 0.1, 1e-5, false);
         return {torch::conv2d(torch::relu6(y), w[3], {}, 1, 1, 1, 8) + y};
       }});
}

TEST(SplitBackward, OfAWeightThatIsUsedTwice) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}), leaves({{4, 4}}), [](const Tensors& x, const Tensors& w) -> Tensors {
                        return {torch::linear(torch::tanh(torch::linear(x[0], w[0])), w[0])};
                      }});
}

// As LoRA has it: the road to the weights is longer than an operator.
TEST(SplitBackward, OfWeightsThatAreComputedFromOthers) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}), leaves({{4, 2}, {2, 4}, {4}}), [](const Tensors& x, const Tensors& w) -> Tensors {
                        const auto product = w[0].matmul(w[1]);
                        return {torch::linear(torch::linear(x[0], product), torch::tanh(product)) * torch::exp(w[2])};
                      }});
}

TEST(SplitBackward, OfSeveralInputsAndOutputsOneOfWhichDependsOnWeightsOnly) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}, {5, 4}}), leaves({{4, 4}, {4, 4}}), [](const Tensors& x, const Tensors& w) -> Tensors {
                        return {torch::linear(x[0], w[0]), x[0] * x[1], w[1] * 2};
                      }});
}

TEST(SplitBackward, OfAnInputThatNoOutputUses) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}, {5, 4}}), leaves({{4, 4}}),
                      [](const Tensors& x, const Tensors& w) -> Tensors { return {torch::linear(x[1], w[0])}; }});
}

TEST(SplitBackward, OfInputsThatWantNoGradient) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}, false), leaves({{4, 4}}),
                      [](const Tensors& x, const Tensors& w) -> Tensors { return {torch::linear(x[0], w[0])}; }});
}

TEST(SplitBackward, OfAGraphWithoutWeights) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}), {}, [](const Tensors& x, const Tensors&) -> Tensors { return {torch::relu(x[0])}; }});
}

TEST(SplitBackward, OfChannelsLastInputs) {
  torch::manual_seed(1);
  Tensors inputs = {torch::randn({2, 3, 5, 5}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_()};
  expect_equal_parts({inputs, leaves({{4, 3, 3, 3}}),
                      [](const Tensors& x, const Tensors& w) -> Tensors { return {torch::conv2d(x[0], w[0]).contiguous()}; }});
}

TEST(SplitBackward, AppliesTheHookOfATensorOnce) {
  torch::manual_seed(1);
  expect_equal_parts({leaves({{5, 4}}), leaves({{4, 4}, {4, 4}}), [](const Tensors& x, const Tensors& w) -> Tensors {
                        const auto y = torch::linear(x[0], w[0]);
                        y.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
                        return {torch::linear(torch::relu(y), w[1])};
                      }});
}

// Operators between the weights run in the first part only.
TEST(SplitBackward, ComputesNoGradientBetweenLayersTwice) {
  torch::manual_seed(1);
  const Tensors x = leaves({{5, 4}});
  const Tensors w = leaves({{4, 4}, {4, 4}});
  const auto between = torch::relu(torch::linear(x[0], w[0]));
  int runs = 0;
  between.register_hook([&runs](const torch::Tensor&) { ++runs; });
  const Tensors outputs = {torch::linear(between, w[1])};
  SplitBackward split;
  split.run_inputs(outputs, seeds_for(outputs), x);
  EXPECT_EQ(runs, 1);
  split.run_weights();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(w[0].grad().defined());
}

}  // namespace
}  // namespace epipe::pipeline
