#pragma once

#include <string>
#include <vector>

#include "epipe/model/model.h"

namespace epipe::model {

// What one layer costs for the samples it was given.
struct LayerCost {
  std::string name;
  std::int64_t parameters = 0;
  double flops = 0;                               // multiplications and additions of one forward
  std::vector<std::vector<std::int64_t>> shapes;  // of its outputs: what a cut after it carries
};

// Of every layer, from one forward in the mode of `at`.
std::vector<LayerCost> layer_costs(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at);

// The layer that a cut names, by its index or its name: the first of the next stage. Throws std::invalid_argument.
std::size_t resolve_cut(const std::string& text, const Model& model);

}  // namespace epipe::model
