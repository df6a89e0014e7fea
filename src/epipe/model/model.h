#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/layer/layer.h"

namespace epipe::model {

// A network as a plain list of layers. Layer names are unique; a parameter's full name is "layer.parameter".
struct Model {
  std::string name;
  std::vector<std::shared_ptr<layer::Layer>> layers;  // shared with the stages that run them
};

// A model by its name, fitted to the data and initialized by the seed. Throws std::invalid_argument that lists the known names, or says
// why the data does not fit.
Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed);
std::vector<std::string> model_names();

// Cuts into so many stages with about equal FLOPs, from a forward of `sample` (one sample): layer indices, ascending. Depends on shapes
// only, never on timing. Throws std::invalid_argument when there are fewer layers than stages.
std::vector<std::size_t> balanced_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages);

// The same with the time that each layer takes here, forward and backward: medians of a few rounds with `sample`, a micro-batch. Depends on
// the machine, so a run records what it chose. The model's weights and statistics stay as they are.
std::vector<std::size_t> measured_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages);

}  // namespace epipe::model
