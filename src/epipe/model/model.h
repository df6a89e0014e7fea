#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "epipe/layer/layer.h"
#include "epipe/model/architecture.h"
#include "epipe/model/named_tensors.h"

namespace epipe::model {

// A network as a plain list of layers. Layer names are unique, and so are the full names of parameters and buffers.
struct Model {
  std::string name;
  std::vector<std::shared_ptr<layer::Layer>> layers;  // shared with the stages that run them; null: owned by another process
};

// Makes the layers without initializing them, which takes time: for weights that will be loaded anyway.
Model build(const Architecture& architecture);
// Makes only the layers for which `wanted` returns true; the others stay null.
Model build(const Architecture& architecture, const std::function<bool(std::size_t layer)>& wanted);
// Initializes the layers that are not null.
void initialize(const Model& model, std::uint64_t seed);

// Parameters and buffers by full name, of the layers that are not null; they are the model's own tensors.
NamedTensors tensors_of(const Model& model);

}  // namespace epipe::model
