#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/layer/layer.h"
#include "epipe/model/named_tensors.h"

namespace epipe::model {

// A network as a plain list of layers. Layer names are unique, and so are the full names of parameters and buffers.
struct Model {
  std::string name;
  std::vector<std::shared_ptr<layer::Layer>> layers;  // shared with the stages that run them
  std::vector<std::string> notes{};                   // what its user must know, one sentence each
  std::string single_layer_reason{};                  // why it is one layer where a user may expect several; empty: it is as it is
};

// For a user who wants to cut a model of one layer: that, the reason, and what to do.
std::string cannot_be_cut(const Model& model);

// A model by its name ("resnet18", "roberta:DIR"), fitted to the data and initialized by the seed. Throws std::invalid_argument that lists
// the known names, or says why the data does not fit.
Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed);
// The same without its first values, which cost time: for weights that are loaded anyway.
Model build_model(std::string_view name, const data::DataSpec& data);
// The names as a user writes them: "resnet18", "roberta:DIR".
std::vector<std::string> model_names();
// Whether a model of this name reads token ids rather than images; std::invalid_argument where the name is unknown.
bool takes_text(std::string_view name);

// Parameters and buffers by full name; they are the model's own tensors.
NamedTensors tensors_of(const Model& model);

// Cuts into so many stages with about equal FLOPs, from a forward of `sample` (one sample): layer indices, ascending. Depends on shapes
// only, never on timing. Throws std::invalid_argument when there are fewer layers than stages.
std::vector<std::size_t> balanced_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages);

// The same with the time that each layer takes here, forward and backward: medians of a few rounds with `sample`, a micro-batch. Depends on
// the machine, so a run records what it chose. The model's weights and statistics stay as they are.
std::vector<std::size_t> measured_cuts(const Model& model, const layer::Tensors& sample, const layer::ForwardContext& at, int stages);

}  // namespace epipe::model
