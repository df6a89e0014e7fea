#include "epipe/pipeline/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

namespace epipe::pipeline {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using NodePtr = decltype(Edge::function);  // shared with the graph: a shared_ptr; PyTorch 2.15: an intrusive_ptr
using NodeSet = std::unordered_set<const Node*>;

// Every node reachable from the roots, once, nodes nearer the leaves first.
std::vector<NodePtr> graph_of(const edge_list& roots) {
  std::vector<NodePtr> nodes;
  NodeSet seen;
  const auto add = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) nodes.push_back(edge.function);
  };
  for (const Edge& root : roots) add(root);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const NodePtr node = nodes[k];
    for (const Edge& edge : node->next_edges()) add(edge);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const NodePtr& a, const NodePtr& b) { return a->topological_nr() < b->topological_nr(); });
  return nodes;
}

// The nodes that lead to an input, including the inputs' own nodes.
NodeSet roads_to(const edge_list& inputs, const std::vector<NodePtr>& nodes) {
  NodeSet roads;
  for (const Edge& input : inputs) roads.insert(input.function.get());
  for (const NodePtr& node : nodes) {
    const auto& next = node->next_edges();
    if (std::any_of(next.begin(), next.end(), [&](const Edge& e) { return e.is_valid() && roads.contains(e.function.get()); })) {
      roads.insert(node.get());
    }
  }
  return roads;
}

// The nodes on these paths with branches to weights.
std::vector<NodePtr> branches_of(const NodeSet& roads, const std::vector<NodePtr>& nodes) {
  std::vector<NodePtr> branches;
  for (const NodePtr& node : nodes) {
    if (!roads.contains(node.get())) continue;
    const auto& next = node->next_edges();
    if (std::any_of(next.begin(), next.end(), [&](const Edge& e) { return e.is_valid() && !roads.contains(e.function.get()); })) {
      branches.push_back(node);
    }
  }
  return branches;
}

// An operator computes no gradient for an edge that leads nowhere. Tensor hooks stay: the engine returns the gradient of a node as it is
// before they run.
void cut_roads(const std::vector<NodePtr>& branches, const NodeSet& roads) {
  for (const NodePtr& node : branches) {
    for (Edge& edge : node->next_edges()) {
      if (edge.is_valid() && roads.contains(edge.function.get())) edge = Edge();
    }
  }
}

// Gives it the memory layout a leaf's gradient would have.
torch::Tensor laid_out(torch::Tensor gradient, const torch::Tensor& leaf) {
  if (!gradient.defined() || torch::autograd::utils::obeys_layout_contract(gradient, leaf)) return gradient;
  return torch::autograd::utils::clone_obey_contract(gradient, leaf);
}

}  // namespace

Tensors SplitBackward::run_inputs(const Tensors& outputs, const Tensors& gradients, const Tensors& inputs) {
  edge_list starts;
  for (const auto& output : outputs) starts.push_back(torch::autograd::impl::gradient_edge(output));
  edge_list ends;  // first the inputs, then the branches to weights
  for (const auto& input : inputs) {
    if (input.requires_grad()) ends.push_back(torch::autograd::impl::gradient_edge(input));
  }
  const auto nodes = graph_of(starts);
  const NodeSet roads = roads_to(ends, nodes);
  const auto branches = branches_of(roads, nodes);
  const std::size_t wanted = ends.size();
  for (const NodePtr& node : branches) {
    for (std::uint32_t k = 0; k < node->num_inputs(); ++k) ends.emplace_back(node, k);
  }

  edge_list on_road;
  Tensors seeds;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    const bool leads = roads.contains(starts[k].function.get());
    (leads ? on_road : roots_).push_back(starts[k]);
    (leads ? seeds : gradients_).push_back(gradients[k]);
  }
  Tensors found(ends.size());
  if (!on_road.empty()) {
    found =
        Engine::get_default_engine().execute(on_road, seeds, /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false, ends);
  }
  for (std::size_t k = wanted; k < ends.size(); ++k) {
    if (!found[k].defined()) continue;
    roots_.push_back(ends[k]);
    gradients_.push_back(found[k]);
  }
  cut_roads(branches, roads);

  Tensors of_inputs;
  std::size_t next = 0;
  for (const auto& input : inputs) of_inputs.push_back(input.requires_grad() ? laid_out(found[next++], input) : torch::Tensor());
  return of_inputs;
}

void SplitBackward::run_weights() {
  const edge_list roots = std::exchange(roots_, {});
  const Tensors gradients = std::exchange(gradients_, {});
  if (roots.empty()) return;
  Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace epipe::pipeline
