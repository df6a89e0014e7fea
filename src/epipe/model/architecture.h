#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::model {

// How to make one layer. Cheap to hold: make() allocates the weights, unless the layers belong to an existing module (a TorchScript file,
// a user's Sequential). Then every make() returns the same layer, so code that only inspects it should use its own architecture.
struct LayerMaker {
  std::string name;  // of the layer it makes
  std::function<std::shared_ptr<layer::Layer>()> make;
};

// A network without its weights: the layers of a model, under the names that cuts use.
struct Architecture {
  std::string name{};
  std::vector<LayerMaker> layers{};
  std::vector<std::string> notes{};   // what its user should know, one sentence each
  std::string single_layer_reason{};  // why it has one layer where a user may expect several; empty: not applicable
  // If the first and the last layer share weights: called with the layers once they are made, to tie them; layers of other processes are
  // null. Both must be on one worker.
  std::function<void(const std::vector<std::shared_ptr<layer::Layer>>&)> share{};
  bool task_head = true;                    // the last layer is specific to the data: with LoRA, it is still trained whole
  bool input_first = false;                 // linear layers store weights [in, out]
  std::int64_t positions = 0;               // of a text model: the most tokens it takes; 0: as many as the data has
  std::int64_t vocabulary = 0;              // of a text model: its token ids are below this; 0: those of the data
  std::vector<std::string> lora_targets{};  // the linear layers that LoRA adapts by default, by the last part of their names
};

// Makes T(arguments...), whose name is `name`.
template <typename T, typename... Arguments>
LayerMaker maker(std::string name, Arguments... arguments) {
  return {std::move(name), [=] { return std::make_shared<T>(arguments...); }};
}

// Makes T(name, arguments...).
template <typename T, typename... Arguments>
LayerMaker named_maker(const std::string& name, Arguments... arguments) {
  return maker<T>(name, name, arguments...);
}

// The message for a user who wants to cut an architecture of one layer: that it cannot be cut, why, and what to do.
std::string cannot_be_cut(const Architecture& architecture);

}  // namespace epipe::model
